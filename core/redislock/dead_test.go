package redislock_test

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/redislock/internal/simulation"
)

// TestWaiterBehindDeadOnesIsServedHalfASecondAfterTheirPlacesHaveLapsed has processes queue,
// all but the last of them die, and the holder release or die after a while. In virtual time.
func TestWaiterBehindDeadOnesIsServedHalfASecondAfterTheirPlacesHaveLapsed(t *testing.T) {
	t.Parallel()
	const (
		ttl   = 10 * time.Second
		limit = 500 * time.Millisecond
	)
	for _, dead := range []int{1, 3, 10, 80} {
		for _, holderDies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d dead, holder dies %v", dead, holderDies), func(t *testing.T) {
				var worst time.Duration
				for seed := range uint64(counts.Short(3, 30)) {
					synctest.Test(t, func(t *testing.T) {
						late := serveBehind(t, seed, dead, ttl, holderDies)
						if late > limit {
							t.Errorf("seed %d: the live waiter was served after %v; want at most %v", seed, late, limit)
						}
						worst = max(worst, late)
					})
				}
				t.Logf("at most %v", worst)
			})
		}
	}
}

// serveBehind returns how late a waiter is served: after the places of those before it have
// lapsed, the lease has ended that the first of them was handed, and the holder's.
func serveBehind(t *testing.T, seed uint64, dead int, ttl time.Duration, holderDies bool) time.Duration {
	w := simulation.New(seed, simulation.Faults{}, 1)
	r := mathrand.New(mathrand.NewPCG(seed, 1))
	type process struct {
		driver.Session
		link *simulation.Link
	}
	var all []process
	join := func() process {
		link := w.Link()
		s, err := redislock.New(nil, redislock.WithLink(link), redislock.WithJitter(link.Jitter)).Open(driver.Config{Sink: deaf{}, StoreTimeout: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, process{s, link})
		return all[len(all)-1]
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel()
		for _, p := range all {
			done, stop := context.WithTimeout(context.Background(), time.Minute)
			_ = p.Close(done) // the links of most are cut
			stop()
		}
		synctest.Wait()
	}()

	holder := join()
	held, err := holder.Acquire(ctx, asking(ttl, false))
	if err != nil {
		t.Fatal(err)
	}
	ends := time.Now().Add(ttl)
	for range dead {
		p := join()
		go func() { _, _ = p.Acquire(ctx, asking(ttl, true)) }() // it dies
		time.Sleep(time.Duration(r.Int64N(int64(100 * time.Millisecond))))
	}
	served := make(chan time.Time, 1)
	live := join()
	go func() {
		for {
			_, err := live.Acquire(ctx, asking(ttl, true))
			if !errors.Is(err, driver.ErrPlaceLost) {
				served <- time.Now()
				return
			}
		}
	}()
	time.Sleep(time.Duration(r.Int64N(int64(time.Second))))
	for _, p := range all[1 : dead+1] {
		p.link.Cut()
	}
	from := time.Now().Add(protocol.MaxPlaceTTL)
	if holderDies {
		holder.link.Cut()
		from = driver.Later(from, ends)
	} else {
		time.Sleep(time.Duration(r.Int64N(int64(2 * time.Second))))
		if err := holder.Release(ctx, []driver.Ending{{ID: held.ID, Token: held.Token, Deadline: held.Deadline}})[0]; err != nil {
			t.Fatal(err)
		}
		from = driver.Later(from, time.Now().Add(protocol.MaxPlaceTTL/3))
	}
	return max(0, (<-served).Sub(from))
}

func asking(ttl time.Duration, wait bool) driver.Request {
	return driver.Request{ID: newID("k"), TTL: ttl, Wait: wait}
}

// deaf hears nothing.
type deaf struct{}

func (deaf) Waiting(driver.ID) {}

func (deaf) Contended(driver.ID, bool) {}

func (deaf) Lost(driver.ID, error) {}

// TestRenewalOnALostConnectionIsSentAnewWhenTheSessionIsConnectedAgain has requests vanish,
// as those do that go to a master that is none any more. In virtual time.
func TestRenewalOnALostConnectionIsSentAnewWhenTheSessionIsConnectedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := simulation.New(1, simulation.Faults{}, 1)
		link := w.Link()
		e, err := core.New(redislock.New(nil, redislock.WithLink(link), redislock.WithJitter(link.Jitter)), core.WithNamespace("test"), core.WithStoreTimeout(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}()
		start := time.Now()
		at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
		lease, err := e.Acquire(t.Context(), core.Policy{Key: "k", TTL: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		at(900 * time.Millisecond)
		w.Fail(simulation.Faults{LoseRequest: 1})
		at(1100 * time.Millisecond) // a renewal was sent meanwhile
		w.Heal()
		link.Break()
		at(1700 * time.Millisecond)
		if left := time.Until(lease.Deadline()); left < 2*time.Second {
			t.Errorf("600 ms after the session is connected again %v of the lease are left; want it renewed", left)
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestCloseWaitsForRequestsThatOvertakenEndingsLeaveBehind has requests for a place travel so
// slowly that what ends them is there first. In virtual time.
func TestCloseWaitsForRequestsThatOvertakenEndingsLeaveBehind(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			w := simulation.New(seed, simulation.Faults{Slow: 0.5, SlowBy: 300 * time.Millisecond}, 1)
			link := w.Link()
			s, err := redislock.New(nil, redislock.WithLink(link), redislock.WithJitter(link.Jitter)).Open(driver.Config{Sink: deaf{}, StoreTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			held, err := s.Acquire(t.Context(), asking(time.Hour, false))
			if err != nil {
				t.Fatal(err)
			}
			var callers sync.WaitGroup
			for i := range 40 {
				callers.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Millisecond)
					defer cancel()
					if _, err := s.Acquire(ctx, asking(time.Hour, true)); err == nil {
						t.Error("a held key was granted")
					}
				})
			}
			callers.Wait()
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second) // whatever was under way has arrived
			if st, _ := w.State(protocol.Key(held.Key)); len(st.Queue) != 0 || len(st.Holders) != 1 {
				t.Errorf("seed %d: %d wait and %d hold", seed, len(st.Queue), len(st.Holders))
			}
		})
	}
}
