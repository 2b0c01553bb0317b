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

// shortStore grants leases that last for granted only, however long they were asked for, as a
// store does whose queue knows no more of a waiter than that it was alive lately. The first
// few renewals fail.
type shortStore struct {
	driver.Driver
	granted  time.Duration
	failing  atomic.Int32
	renewals atomic.Int32
}

func (d *shortStore) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	return shortSession{s, d}, err
}

type shortSession struct {
	driver.Session // and no driver.Prompt
	store          *shortStore
}

func (s shortSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	sent := time.Now()
	g, err := s.Session.Acquire(ctx, r)
	g.Deadline = driver.Deadline(sent, min(s.store.granted, r.TTL))
	return g, err
}

func (s shortSession) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	s.store.renewals.Add(1)
	if s.store.failing.Add(-1) >= 0 {
		out := make([]driver.Renewed, len(rs))
		for i := range out {
			out[i].Err = errLostReply
		}
		return out
	}
	return s.Session.Renew(ctx, rs)
}

func onShortStore(t *testing.T, test func(t *testing.T, store *shortStore, mgr *Manager, terms func(ttl time.Duration) *Terms)) {
	synctest.Test(t, func(t *testing.T) {
		store := &shortStore{Driver: memlock.New(), granted: 3 * time.Second}
		s, err := signals.New(nil, noop.NewMeterProvider(), "memory")
		if err != nil {
			t.Fatal(err)
		}
		test(t, store, openManager(t, store), func(ttl time.Duration) *Terms {
			return &Terms{Signals: s.Of("", "exclusive"), TTL: ttl, Wait: Forever}
		})
	})
}

func mustHold(t *testing.T, mgr *Manager, terms *Terms) *Hold {
	t.Helper()
	h, r := mgr.Acquire(t.Context(), terms, "k", time.Hour, nil)
	if r != nil {
		t.Fatalf("%+v", r)
	}
	return h
}

func mustRelease(t *testing.T, h *Hold) {
	t.Helper()
	if r := h.Release(t.Context()); r != nil {
		t.Errorf("%+v", r)
	}
}

// left is how much of a hold's lease is left.
func (h *Hold) left() time.Duration { return time.Until(h.Deadline()) }

func TestShortGrantHasItsTTLWithinARenewalsTime(t *testing.T) {
	for _, ttl := range []time.Duration{4 * time.Second, 30 * time.Second, time.Hour} {
		for _, fail := range []int32{0, 1, 2} {
			onShortStore(t, func(t *testing.T, store *shortStore, mgr *Manager, terms func(time.Duration) *Terms) {
				store.failing.Store(fail)
				h := mustHold(t, mgr, terms(ttl))
				time.Sleep(soon + time.Duration(fail)*500*time.Millisecond)
				synctest.Wait()
				if left := h.left(); left < ttl*6/10 {
					t.Errorf("of a TTL of %v %v are left after %d renewals that failed", ttl, left, fail)
				}
				time.Sleep(ttl) // and it is kept like any other
				if _, live := h.State(); !live {
					t.Errorf("a lease of %v was lost", ttl)
				}
				mustRelease(t, h)
			})
		}
	}
}

func TestShortHoldOnAShortGrantCostsNoRenewal(t *testing.T) {
	onShortStore(t, func(t *testing.T, store *shortStore, mgr *Manager, terms func(time.Duration) *Terms) {
		for range 100 {
			h := mustHold(t, mgr, terms(30*time.Second))
			time.Sleep(soon / 4)
			mustRelease(t, h)
		}
		if n := store.renewals.Load(); n != 0 {
			t.Errorf("%d renewals", n)
		}
	})
}

func TestHandOffsPutNoRenewalOff(t *testing.T) {
	onShortStore(t, func(t *testing.T, store *shortStore, mgr *Manager, terms func(time.Duration) *Terms) {
		all := terms(30 * time.Second)
		h := mustHold(t, mgr, all)
		began := time.Now()
		granted, token := began, h.Token()/block
		for time.Since(began) < time.Minute {
			next := make(chan *Hold)
			go func() { next <- mustHold(t, mgr, all) }()
			synctest.Wait()
			time.Sleep(soon / 4)
			mustRelease(t, h)
			h = <-next
			if now := h.Token() / block; now != token { // each grant has a number of tokens
				granted, token = time.Now(), now
			}
			if left := h.left(); time.Since(granted) > 2*soon && left < all.TTL*6/10 {
				t.Fatalf("%v after its grant a hold begins with %v of a TTL of %v", time.Since(granted), left, all.TTL)
			}
		}
		if n := store.renewals.Load(); n > 75 { // one a second, since the word that nobody else waits is believed for so long
			t.Errorf("%d renewals in a minute", n)
		}
		mustRelease(t, h)
	})
}

func TestLongerTTLOnAHandedOnLeaseIsThereSoon(t *testing.T) {
	onShortStore(t, func(t *testing.T, store *shortStore, mgr *Manager, terms func(time.Duration) *Terms) {
		store.granted = time.Hour
		h := mustHold(t, mgr, terms(3*time.Second))
		next := make(chan *Hold)
		go func() { next <- mustHold(t, mgr, terms(30*time.Second)) }()
		synctest.Wait()
		mustRelease(t, h)
		h = <-next
		time.Sleep(soon)
		synctest.Wait()
		if left := h.left(); left < 29*time.Second {
			t.Errorf("%v of a TTL of 30s are left", left)
		}
		mustRelease(t, h)
	})
}
