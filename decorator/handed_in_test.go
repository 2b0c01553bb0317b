package decorator_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

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
