package core_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// counted is a driver that counts its sessions' calls.
type counted struct {
	driver.Driver
	acquire, replace, renew, release atomic.Int64

	renewal func() // called before each, if not nil
	renewed func() // called when the store has answered one and its answer is on its way, if not nil
}

type countedSession struct {
	driver.Session
	c *counted
}

func (c *counted) Open(cfg driver.Config) (driver.Session, error) {
	s, err := c.Driver.Open(cfg)
	return countedSession{s, c}, err
}

func (s countedSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s.c.acquire.Add(1)
	if r.Replace != nil {
		s.c.replace.Add(1)
	}
	return s.Session.Acquire(ctx, r)
}

func (s countedSession) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	s.c.renew.Add(1)
	if s.c.renewal != nil {
		s.c.renewal()
	}
	out := s.Session.Renew(ctx, rs)
	if s.c.renewed != nil {
		s.c.renewed()
	}
	return out
}

func (s countedSession) Release(ctx context.Context, rs []driver.Ending) []error {
	s.c.release.Add(1)
	return s.Session.Release(ctx, rs)
}

// run lets n callers of e hold the key for d each, one after the other, and
// checks their tokens.
func run(t *testing.T, e *core.Engine, n int, p core.Policy, d time.Duration) {
	t.Helper()
	var tokens []int64
	var wg sync.WaitGroup
	first := mustAcquire(t, e, p)
	for range n - 1 {
		wg.Go(func() {
			mustBe(t, e.Do(t.Context(), p, func(ctx context.Context) error {
				l, _ := core.LeaseFrom(ctx)
				tokens = append(tokens, l.Token())
				time.Sleep(d)
				return nil
			}), nil)
		})
	}
	synctest.Wait()
	time.Sleep(d)
	mustBe(t, first.Release(t.Context()), nil)
	wg.Wait()
	last := first.Token()
	for _, token := range tokens {
		if token <= last {
			t.Fatalf("token %d after %d", token, last)
		}
		last = token
	}
}

func TestHandOffNeedsNoStoreWhileNobodyElseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{Driver: memlock.New()}
		e := open(t, c)
		run(t, e, 500, core.Policy{Key: "k", Wait: core.Forever}, 0)
		if c.acquire.Load() != 1 || c.renew.Load() != 0 || c.release.Load() != 1 {
			t.Errorf("%d acquires, %d renewals, %d releases", c.acquire.Load(), c.renew.Load(), c.release.Load())
		}
	})
}

func TestBlockEndTakesAFreshGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{Driver: memlock.New()}
		e := open(t, c)
		run(t, e, 3000, core.Policy{Key: "k", Wait: core.Forever}, 0)
		if c.acquire.Load() != 3 || c.replace.Load() != 2 || c.release.Load() != 1 {
			t.Errorf("%d acquires, of them %d replace, %d releases", c.acquire.Load(), c.replace.Load(), c.release.Load())
		}
	})
}

func TestHandOffRenewsFirst(t *testing.T) {
	tests := []struct {
		name   string
		policy core.Policy
		hold   time.Duration
		renew  int64
	}{
		{"when the last word that nobody waits is old", core.Policy{TTL: time.Minute}, 1500 * time.Millisecond, 3},
		{"when little of the lease is left", core.Policy{TTL: time.Second, NoRenew: true}, 900 * time.Millisecond, 3},
		{"not when there is no need", core.Policy{TTL: time.Minute}, 200 * time.Millisecond, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := &counted{Driver: memlock.New()}
				e := open(t, c)
				tt.policy.Key, tt.policy.Wait = "k", core.Forever
				run(t, e, 4, tt.policy, tt.hold)
				if c.acquire.Load() != 1 || c.renew.Load() != tt.renew {
					t.Errorf("%d acquires, %d renewals; want 1 and %d", c.acquire.Load(), c.renew.Load(), tt.renew)
				}
			})
		})
	}
}

func TestMinHoldTakesAGrantOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{Driver: memlock.New()}
		e := open(t, c)
		start := time.Now()
		run(t, e, 3, core.Policy{Key: "k", Wait: core.Forever, MinHold: time.Second}, 0)
		if c.acquire.Load() != 3 || time.Since(start) < 2*time.Second {
			t.Errorf("%d acquires in %v", c.acquire.Load(), time.Since(start))
		}
	})
}

func TestMinHoldTakesAGrantOfItsOwnAfterARenewalForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		c := &counted{Driver: d, renewal: func() { time.Sleep(100 * time.Millisecond) }}
		e, other := open(t, c), open(t, d)
		first := mustAcquire(t, e, core.Policy{Key: "k", TTL: time.Minute})
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			_, err := e.Acquire(ctx, core.Policy{Key: "k", TTL: time.Minute, Wait: core.Forever})
			mustBe(t, err, context.Canceled)
		})
		synctest.Wait()
		var began time.Time
		wg.Go(func() {
			mustBe(t, e.Do(t.Context(), core.Policy{Key: "k", TTL: time.Minute, Wait: core.Forever, MinHold: 2 * time.Second}, func(context.Context) error {
				began = time.Now()
				return nil
			}), nil)
		})
		synctest.Wait()
		time.Sleep(1500 * time.Millisecond) // the word that nobody waits is old by then
		mustBe(t, first.Release(t.Context()), nil)
		time.Sleep(50 * time.Millisecond) // the renewal is under way
		cancel()
		wg.Wait()
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k", Wait: time.Minute}).Release(t.Context()), nil)
		if kept := time.Since(began); kept < 2*time.Second {
			t.Errorf("the key was kept for %v of 2s", kept)
		}
	})
}

func TestRenewalsTravelTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counted{Driver: memlock.New()}
		e := open(t, c)
		var leases []*core.Lease
		for i := range 1000 {
			leases = append(leases, mustAcquire(t, e, core.Policy{Key: strconv.Itoa(i), TTL: 30 * time.Second}))
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Minute)
		if c.renew.Load() > 40 {
			t.Errorf("%d calls renewed 1000 leases for 5 minutes", c.renew.Load())
		}
		for _, l := range leases {
			mustBe(t, l.Release(t.Context()), nil)
		}
	})
}

func TestLeaseThatIsNotRenewedEndsWithItsOwnTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		long := mustAcquire(t, e, core.Policy{Key: "k", TTL: time.Hour})
		var wg sync.WaitGroup
		wg.Go(func() {
			var start time.Time
			mustBe(t, e.Do(t.Context(), core.Policy{Key: "k", TTL: 10 * time.Second, NoRenew: true, Wait: core.Forever}, func(ctx context.Context) error {
				start = time.Now()
				l, _ := core.LeaseFrom(ctx)
				if got := time.Until(l.Deadline()); got > 10*time.Second {
					t.Errorf("the deadline is in %v", got)
				}
				<-ctx.Done()
				return nil
			}), core.ErrLost)
			if took := time.Since(start); took > 10*time.Second {
				t.Errorf("held for %v", took)
			}
		})
		synctest.Wait()
		mustBe(t, long.Release(t.Context()), nil)
		wg.Wait()
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "k", Wait: time.Second}).Release(t.Context()), nil)
	})
}
