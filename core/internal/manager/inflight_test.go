package manager

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric/noop"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
	"github.com/lockaround/lockaround/core/memlock"
)

// slowStore does at once what it is asked, and while it is slow it answers a second later, and no
// renewal.
type slowStore struct {
	driver.Driver
	slow atomic.Bool
}

func (d *slowStore) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return slowSession{s, d}, err
}

type slowSession struct {
	driver.Session // and no driver.Prompt
	store          *slowStore
}

func (s slowSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := s.Session.Acquire(ctx, r)
	if s.store.slow.Load() {
		time.Sleep(time.Second)
	}
	return g, err
}

func (s slowSession) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := s.Session.Renew(ctx, rs)
	if s.store.slow.Load() {
		for i := range out {
			out[i] = driver.Renewed{Err: errLostReply}
		}
	}
	return out
}

// inProcesses opens queues on one store.
func inProcesses(t *testing.T, n int, test func(t *testing.T, store *slowStore, qs []*Manager)) {
	synctest.Test(t, func(t *testing.T) {
		store := &slowStore{Driver: memlock.New()}
		var qs []*Manager
		for range n {
			qs = append(qs, openManager(t, store))
		}
		test(t, store, qs)
	})
}

func testTerms(t *testing.T, wait time.Duration) *Terms {
	s, err := signals.New(nil, noop.NewMeterProvider(), "memory")
	if err != nil {
		t.Fatal(err)
	}
	return &Terms{Signals: s.Of("", "exclusive"), TTL: time.Minute, Wait: wait}
}

func (mgr *Manager) take(t *testing.T, terms *Terms, key string) *Hold {
	t.Helper()
	h, r := mgr.Acquire(t.Context(), terms, key, max(terms.Wait, mgr.StoreTimeout), nil)
	if r != nil {
		t.Fatalf("%+v", r)
	}
	return h
}

func (h *Hold) drop(t *testing.T) {
	t.Helper()
	if r := h.Release(t.Context()); r != nil {
		t.Errorf("a release comes to %+v", r)
	}
}

// TestGrantThatHasEndedOnItsWayIsNotServed ends a lease between the store's grant and its answer.
func TestGrantThatHasEndedOnItsWayIsNotServed(t *testing.T) {
	for _, c := range []struct {
		how string
		end func(t *testing.T, own, other *Manager, token int64)
	}{
		{"another process takes it away", func(t *testing.T, _, other *Manager, token int64) {
			if err := other.session.Oust(t.Context(), "k", token); err != nil {
				t.Error(err)
			}
		}},
		{"this one does", func(_ *testing.T, own, _ *Manager, token int64) { own.Lose("k", token) }},
	} {
		t.Run(c.how, func(t *testing.T) {
			inProcesses(t, 2, func(t *testing.T, store *slowStore, qs []*Manager) {
				store.slow.Store(true)
				var token int64 // that has ended
				time.AfterFunc(500*time.Millisecond, func() {
					st, err := qs[1].session.Inspect(t.Context(), "k")
					if err != nil || !st.Held {
						t.Errorf("%+v, %v", st, err)
					}
					token = st.Token
					c.end(t, qs[0], qs[1], token)
					store.slow.Store(false)
				})
				h := qs[0].take(t, testTerms(t, 10*time.Second), "k")
				if h.lease.Token <= token {
					t.Errorf("served is a lease with token %d, which was ended up to %d", h.lease.Token, token)
				}
				h.drop(t)
			})
		})
	}
}

// TestReleasedHoldAsksNothingOfTheNextOne lowers a hold whose lease has been handed on.
func TestReleasedHoldAsksNothingOfTheNextOne(t *testing.T) {
	inProcesses(t, 1, func(t *testing.T, _ *slowStore, qs []*Manager) {
		terms := testTerms(t, 10*time.Second)
		first := qs[0].take(t, terms, "k")
		next := make(chan *Hold)
		go func() { next <- qs[0].take(t, terms, "k") }()
		synctest.Wait()
		first.drop(t)
		second := <-next
		if second.lease != first.lease {
			t.Fatal("the lease was not handed on, so that nothing is tested")
		}
		for _, about := range []Question{{}, {TTL: time.Hour}, {Lower: true}} {
			if r := first.Ask(t.Context(), about); r == nil || r.Why != Released {
				t.Errorf("a hold that was released is asked %+v: %+v", about, r)
			}
		}
		if m := second.Mode(); m != driver.Exclusive {
			t.Errorf("the next hold is %v", m)
		}
		second.drop(t)
	})
}

// TestReleaserKnowsOfRenewalsThatHadNoAnswer asks for a longer lease, and the answer is lost.
func TestReleaserKnowsOfRenewalsThatHadNoAnswer(t *testing.T) {
	inProcesses(t, 1, func(t *testing.T, store *slowStore, qs []*Manager) {
		h := qs[0].take(t, testTerms(t, 0), "k")
		store.slow.Store(true)
		if r := h.Ask(t.Context(), Question{TTL: time.Hour}); r == nil || r.Why != Unavailable {
			t.Errorf("%+v", r)
		}
		store.slow.Store(false)
		if h.lease.length != time.Hour {
			t.Errorf("the releaser would give up after %v a lease that may last for an hour", h.lease.length)
		}
		h.drop(t)
	})
}

// TestKeysThatWereNotUsedAreNotKept has a call take two keys with MinHold, of which the first is
// taken for a moment.
func TestKeysThatWereNotUsedAreNotKept(t *testing.T) {
	inProcesses(t, 2, func(t *testing.T, _ *slowStore, qs []*Manager) {
		other := qs[1].take(t, testTerms(t, 0), "a")
		terms := testTerms(t, 5*time.Second)
		terms.MinHold = 20 * time.Second
		time.AfterFunc(100*time.Millisecond, func() { other.drop(t) })
		holds, r := qs[0].AcquireAll(t.Context(), terms, []string{"a", "b"}, terms.Wait, nil)
		if r != nil {
			t.Fatalf("%+v", r)
		}
		ReleaseAll(t.Context(), holds)
		if _, r := qs[1].Acquire(t.Context(), testTerms(t, 0), "b", time.Second, nil); r == nil || r.Why != Busy {
			t.Errorf("a key that was used is not kept: %+v", r)
		}
	})
}

// TestShutdownLetsACallThatWaitsHaveAllItsKeys shuts a manager down while a call has one of its keys
// and waits for the next.
func TestShutdownLetsACallThatWaitsHaveAllItsKeys(t *testing.T) {
	inProcesses(t, 2, func(t *testing.T, _ *slowStore, qs []*Manager) {
		other := qs[1].take(t, testTerms(t, 0), "b")
		time.AfterFunc(time.Second, func() {
			time.AfterFunc(time.Second, func() { other.drop(t) })
			if r := qs[0].Shutdown(t.Context()); r != nil {
				t.Errorf("%+v", r)
			}
		})
		terms := testTerms(t, 10*time.Second)
		holds, r := qs[0].AcquireAll(t.Context(), terms, []string{"a", "b", "c", "d"}, terms.Wait, nil)
		if r != nil {
			t.Fatalf("%+v", r)
		}
		if _, r := qs[0].AcquireAll(t.Context(), terms, []string{"e", "f"}, terms.Wait, nil); r == nil || r.Why != Closed {
			t.Errorf("a call that comes after it: %+v", r)
		}
		ReleaseAll(t.Context(), holds)
		synctest.Wait()
	})
}
