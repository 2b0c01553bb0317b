package cache_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestALoaderThatHangsIsEndedByMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = takes(time.Hour)
		f := cache.Must(l.locks(), core.Policy{Key: "page:{.}", Wait: core.Forever, MaxHold: 2 * time.Second, TTL: time.Second}, l.store, l.read, kept)
		t.Cleanup(f.Close)
		if _, err := f.Get(t.Context(), "a"); !errors.Is(err, core.ErrMaxHold) {
			t.Errorf("%v; want ErrMaxHold", err)
		}
		l.load = nil
		gets(t, f, 2)
	})
}

func TestAPanicGoesOnInEveryCallerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = func(ctx context.Context, id string) error {
			_ = takes(time.Second)(ctx, id)
			panic("page " + id)
		}
		f := l.process(kept)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				defer func() {
					if v := recover(); v != "page a" {
						t.Errorf("recovered %v", v)
					}
				}()
				_, err := f.Get(t.Context(), "a")
				t.Errorf("returned %v", err)
			})
		}
		calls.Wait()
		l.loaded(1)
		l.load = nil
		gets(t, f, 2)
		time.Sleep(11 * time.Second)
		l.load = func(context.Context, string) error { panic("in the background") }
		gets(t, f, 2)
		synctest.Wait()
		l.loaded(3)
	})
}

func TestAFunctionThatEndsItsGoroutineIsAnErrorForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = func(context.Context, string) error { runtime.Goexit(); return nil }
		f := l.process(kept)
		if _, err := f.Get(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
			t.Error(err)
		}
		l.load = nil
		gets(t, f, 2)
	})
}

func TestAFunctionThatAsksForItsOwnValueIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		f := l.process(kept)
		l.load = func(ctx context.Context, id string) error {
			other := map[string]string{"a": "b", "b": "a", "c": "d", "d": ""}[id]
			if other == "" {
				return nil
			}
			_, err := f.Get(ctx, other)
			return err
		}
		if _, err := f.Get(t.Context(), "a"); !errors.Is(err, core.ErrDeadlock) {
			t.Errorf("a needs b, which needs a: %v", err)
		}
		if _, err := f.Get(t.Context(), "c"); err != nil {
			t.Errorf("c needs d: %v", err)
		}
	})
}

func TestALoadEndsWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		ended := make(chan error, 1)
		l.load = func(ctx context.Context, id string) error {
			err := takes(time.Hour)(ctx, id)
			ended <- err
			return err
		}
		f := l.process(kept)
		var calls sync.WaitGroup
		for i := range 3 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				if _, err := f.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		began := time.Now()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v; want the load to end with the last caller", err, time.Since(began))
		}
		calls.Wait()
		l.load = nil
		gets(t, f, 2)
	})
}

func TestCloseEndsLoadsAndWhoWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		f := l.process(kept)
		gets(t, f, 1)
		l.load = takes(time.Hour)
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := f.Get(t.Context(), "b"); !errors.Is(err, core.ErrClosed) {
				t.Errorf("%v; want ErrClosed", err)
			}
		})
		synctest.Wait()
		f.Close()
		calls.Wait()
		gets(t, f, 1)
		if _, err := f.Get(t.Context(), "c"); !errors.Is(err, core.ErrClosed) {
			t.Errorf("%v; want ErrClosed", err)
		}
		f.Close()
	})
}

func TestLoadsThatWaitForEachOtherEndInADeadlockAndLeaveTheirLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		var f *cache.Func[string, page]
		next := map[string]string{"a": "b", "b": "c", "c": "a"}
		circle := true
		l.load = func(ctx context.Context, id string) error {
			if !circle {
				return nil
			}
			time.Sleep(time.Second) // until all of them are under way
			_, err := f.Get(ctx, next[id])
			return err
		}
		f = l.process(cache.Policy{Expiry: time.Minute})
		var callers sync.WaitGroup
		for id := range next {
			callers.Go(func() {
				if _, err := f.Get(t.Context(), id); !errors.Is(err, core.ErrDeadlock) {
					t.Errorf("Get of %s, which waits for itself: %v; want ErrDeadlock", id, err)
				}
			})
		}
		began := time.Now()
		callers.Wait()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the deadlock was told after %v", took)
		}
		circle = false
		for id := range next {
			if _, err := f.Get(t.Context(), id); err != nil {
				t.Errorf("Get of %s afterwards: %v", id, err)
			}
		}
	})
}

func TestHolderOfAKeyDoesNotWaitForALoadThatWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		locks := l.locks()
		f := cache.Must(locks, core.Policy{Key: "page:{.}", Wait: core.Forever, TTL: 3 * time.Second}, l.store, l.read, cache.Policy{Expiry: time.Minute})
		t.Cleanup(f.Close)
		var other sync.WaitGroup
		err := locks.Do(t.Context(), core.Policy{Key: "page:a"}, func(ctx context.Context) error {
			other.Go(func() {
				if _, err := f.Get(t.Context(), "a"); err != nil { // its load waits for the lock
					t.Errorf("Get by somebody else: %v", err)
				}
			})
			synctest.Wait()
			if _, err := f.Get(ctx, "a"); !errors.Is(err, core.ErrDeadlock) {
				t.Errorf("Get by the holder of the lock: %v; want ErrDeadlock", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		other.Wait()
	})
}

// wrongCache is a store whose Put or Claim does something that it should not for one key.
type wrongCache struct {
	cache.Store
	put, claim func()
}

func (c *wrongCache) Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	if c.put != nil && strings.HasSuffix(key, "bad") {
		c.put()
	}
	return c.Store.Put(ctx, key, token, value, ttl)
}

func (c *wrongCache) Claim(ctx context.Context, key string, token int64, ttl time.Duration) (cache.Entry, error) {
	if c.claim != nil && strings.HasSuffix(key, "bad") {
		c.claim()
	}
	return c.Store.Claim(ctx, key, token, ttl)
}

// A refill runs on a goroutine of the cache's own. Whatever is called there, the process goes on, the key of
// the lock gets free, callers are back by the end of their contexts, and Close ends.
func TestWhatAProgramHandsInEndsNoMoreThanItsRefill(t *testing.T) {
	for _, place := range []string{"the function", "its error", "the codec", "Claim", "Put"} {
		for what, do := range roomtest.Wrongs {
			t.Run(place+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					forever := roomtest.Forever(t)
					wrong := func() { do(forever) }
					is := func(p string) func() {
						if p == place {
							return wrong
						}
						return nil
					}
					memory, locks := cache.NewMemory(cache.Limits{Entries: 100}), memlock.New()
					c := cache.Policy{Expiry: time.Hour}
					if place == "the codec" {
						c.Codec = roomtest.WrongCodec{Do: wrong, Marshals: true}
					}
					e := roomtest.Engine(t, locks)
					f, err := cache.New(e, core.Policy{Key: "price:{.}", TTL: 10 * time.Second, MaxHold: 20 * time.Second, Wait: time.Hour},
						&wrongCache{memory, is("Put"), is("Claim")}, func(_ context.Context, sku string) (string, error) {
							switch {
							case sku != "bad":
							case place == "the function":
								wrong()
							case place == "its error":
								return "", roomtest.WrongError{Do: wrong}
							}
							return sku, nil
						}, c)
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					got := func(sku string) (out string, err error) {
						defer func() {
							if p := recover(); p != nil {
								err = fmt.Errorf("panicked: %v", p)
							}
						}()
						return f.Get(ctx, sku)
					}
					for range 2 {
						if out, err := got("bad"); err == nil {
							t.Errorf("Get is %q without an error", out)
						}
					}
					if out, err := f.Get(t.Context(), "good"); err != nil || out != "good" {
						t.Errorf("another key: %q, %v", out, err)
					}
					time.Sleep(time.Minute)
					lease, err := roomtest.Engine(t, locks).Acquire(t.Context(), core.Policy{Key: "price:bad"})
					if err != nil {
						t.Fatal(err)
					}
					_ = lease.Release(t.Context())
					start := time.Now()
					f.Close()
					if took := time.Since(start); took > 10*time.Second {
						t.Errorf("Close took %v", took)
					}
				})
			})
		}
	}
}

// slowValues is a context that takes some time to look into.
type slowValues struct {
	context.Context
	time.Duration
}

func (c slowValues) Value(key any) any {
	time.Sleep(c.Duration)
	return c.Context.Value(key)
}

// Whoever holds the lock of a value, or one that its load takes, waits for himself. Others who have joined
// the refill that he began hold nothing.
func TestDeadlockOfWhoBeganARefillIsHisAlone(t *testing.T) {
	for _, key := range []string{"price:a", "taken by the load"} {
		t.Run("who holds "+key, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := roomtest.Engine(t, memlock.New())
				f := cache.Must(e, core.Policy{Key: "price:{.}", Wait: time.Hour}, cache.NewMemory(cache.Limits{Entries: 9}), func(ctx context.Context, sku string) (string, error) {
					time.Sleep(2 * time.Second)
					return sku, e.Do(ctx, core.Policy{Key: "taken by the load", Wait: time.Hour}, func(context.Context) error { return nil })
				}, cache.Policy{Expiry: time.Hour})
				lease, err := e.Acquire(t.Context(), core.Policy{Key: key})
				if err != nil {
					t.Fatal(err)
				}
				guilty := roomtest.Begin(func() error {
					_, err := f.Get(slowValues{lease.Context(t.Context()), time.Second}, "a")
					return err
				})
				time.Sleep(time.Second / 2) // he begins the refill before the others join it, and they have called before it asks for the lock
				var all []<-chan error
				for range 9 {
					all = append(all, roomtest.Begin(func() error {
						_, err := f.Get(slowValues{t.Context(), 750 * time.Millisecond}, "a")
						return err
					}))
				}
				if err := <-guilty; !errors.Is(err, core.ErrDeadlock) {
					t.Errorf("who holds the lock gets %v, want core.ErrDeadlock", err)
				}
				time.Sleep(time.Minute)
				if err := lease.Release(t.Context()); err != nil {
					t.Error(err)
				}
				for _, got := range all {
					if err := <-got; err != nil {
						t.Errorf("who holds nothing gets %v", err)
					}
				}
			})
		})
	}
}

func TestALeaseThatIsLostAtOnceHarmsNoLoad(t *testing.T) {
	roomtest.LostAtOnce(t, "job:report", nil, func(t *testing.T, e *core.Engine) error {
		f := cache.Must(e, core.Policy{Key: "job:{.}", Wait: time.Minute}, cache.NewMemory(cache.Limits{Entries: 9}),
			func(_ context.Context, in string) (string, error) { return in, nil }, cache.Policy{Expiry: time.Minute})
		defer f.Close()
		v, err := f.Get(t.Context(), "report")
		if v != "report" {
			t.Errorf("got %q", v)
		}
		return err
	})
}
