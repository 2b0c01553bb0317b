package decorator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/codec"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue"
)

// wrongStore has queues whose first Begin does something that it should not.
type wrongStore struct {
	queue.Store
	do func()
}

func (s *wrongStore) Open(name string, r queue.Rules) (queue.Queue, error) {
	q, err := s.Store.Open(name, r)
	return &wrongQueue{q, s}, err
}

type wrongQueue struct {
	queue.Queue
	s *wrongStore
}

func (q *wrongQueue) Begin(ctx context.Context, h queue.Holder) (queue.Step, error) {
	if do := q.s.do; do != nil && strings.HasSuffix(h.Key, "bad") {
		q.s.do = nil
		do()
	}
	return q.Queue.Begin(ctx, h)
}

// An item that no worker can read, or whose function fails in a way of its own, is a failure of that item:
// other keys go on, in this process, and Work ends.
func TestWhatAProgramHandsInStopsNoOtherKey(t *testing.T) {
	for place, build := range map[string]func(do func()) (codec.Codec, func() error){
		"the codec": func(do func()) (codec.Codec, func() error) {
			return roomtest.WrongCodec{Do: do, Reading: true}, func() error { return nil }
		},
		"the function": func(do func()) (codec.Codec, func() error) {
			return nil, func() error { do(); return nil }
		},
		"the error of the function": func(do func()) (codec.Codec, func() error) {
			return nil, func() error { return roomtest.WrongError{Do: do} }
		},
		"the store": func(func()) (codec.Codec, func() error) { return nil, func() error { return nil } },
	} {
		for what, do := range roomtest.Wrongs {
			if place == "the store" && what != "panics" {
				continue // its calls end with their contexts
			}
			t.Run(place+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					forever := roomtest.Forever(t)
					codec, run := build(func() { do(forever) })
					s := newRefundShop(t)
					e, log := roomtest.LoggedEngine(t, s.locks)
					var store queue.Store = s.store
					if place == "the store" {
						store = &wrongStore{s.store, func() { do(forever) }}
					}
					p := refundPolicy
					p.MaxHold = time.Minute
					var done atomic.Int64 // of the other key
					f, err := decorator.NewSerial(e, p, store, func(_ context.Context, r refund) error {
						if r.OrderID == "bad" {
							return run()
						}
						done.Add(1)
						return nil
					}, decorator.SerialPolicy{Codec: codec, Attempts: 2})
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithCancel(t.Context())
					ended := roomtest.Begin(func() error { return f.Work(ctx) })
					bad := s.enqueue(f, "bad", 1)
					time.Sleep(time.Second)
					s.enqueue(f, "good", 1)
					time.Sleep(time.Second)
					if n := done.Load(); n != 1 {
						t.Errorf("the item of another key ran %d times, want once", n)
					}
					time.Sleep(5 * time.Minute)
					st, err := f.Status(t.Context(), bad.ID)
					if err != nil {
						t.Fatal(err)
					}
					if what != "never returns" && place != "the store" && (st.State.String() != "dead" || !strings.Contains(log.String(), "has not ended well")) {
						t.Errorf("the item is %v, and the log says %q; want it dead, and said so", st.State, log)
					}
					cancel()
					start := time.Now()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Errorf("Work ended with %v", err)
					}
					if took := time.Since(start); took > 2*time.Minute {
						t.Errorf("Work ended after %v", took)
					}
				})
			})
		}
	}
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
					c := decorator.CachePolicy{Expiry: time.Hour}
					if place == "the codec" {
						c.Codec = roomtest.WrongCodec{Do: wrong, Writing: true}
					}
					e, _ := roomtest.LoggedEngine(t, locks)
					f, err := decorator.NewCached(e, core.Policy{Key: "price:{.}", TTL: 10 * time.Second, MaxHold: 20 * time.Second, Wait: time.Hour},
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

// slowEnd is a store that answers to releases after a second.
type slowEnd struct{ *memlock.Driver }

func (d slowEnd) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return slowEndSession{s}, err
}

type slowEndSession struct{ driver.Session }

func (s slowEndSession) Release(ctx context.Context, es []driver.Ending) []error {
	time.Sleep(time.Second)
	return s.Session.Release(ctx, es)
}

func TestLocksAreFreeWhenWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newRefundShop(t)
		s.locks = slowEnd{memlock.New()}
		f := s.process(decorator.SerialPolicy{}, func(context.Context, refund, int) error { time.Sleep(time.Second); return nil })
		s.enqueue(f, "A", 1)
		s.enqueue(f, "B", 9)
		stop := work(t, f)
		time.Sleep(1500 * time.Millisecond) // A is being released, B runs
		if err := stop(); !errors.Is(err, context.Canceled) || errors.Is(err, decorator.ErrStuck) {
			t.Errorf("Work ended with %v", err)
		}
		other := roomtest.Engine(t, s.locks)
		for _, order := range []string{"A", "B"} {
			l, err := other.Acquire(t.Context(), core.Policy{Key: "refund:" + order})
			if err != nil {
				t.Errorf("the lock of %s when Work has ended: %v", order, err)
				continue
			}
			_ = l.Release(t.Context())
		}
	})
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
				f := decorator.Cached(e, core.Policy{Key: "price:{.}", Wait: time.Hour}, cache.NewMemory(cache.Limits{Entries: 9}), func(ctx context.Context, sku string) (string, error) {
					time.Sleep(2 * time.Second)
					return sku, e.Do(ctx, core.Policy{Key: "taken by the load", Wait: time.Hour}, func(context.Context) error { return nil })
				}, decorator.CachePolicy{Expiry: time.Hour})
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
