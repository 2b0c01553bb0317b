package manager

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// A service that holds a key and calls another one, which asks for the same key, waits for
// itself. The call carries the fencing token of the hold, and so the second service can tell. It
// refuses the wait if the hold with that token keeps the key from the caller as long as it lasts.
//
// A hold of this process is known for certain. Of another process's, the store knows only the
// grant. Its process may have ended the hold and kept the lease, for a later one or because it
// lingers. But as soon as it hears that others wait, it gives such a lease back, or hands it on
// for [turnTime] at most. So the grant counts once it has outlasted callerGrace of waiting.
const callerGrace = 100 * time.Millisecond

// watchCaller refuses w if the hold with that token keeps it from the key, until the returned
// function is called.
func (mgr *Manager) watchCaller(ctx context.Context, w *waiter, key string, token int64) (stop func()) {
	stop = func() {}
	granted := token/block - mgr.TokensAfter
	if granted <= 0 {
		return stop
	}
	switch here, holds := mgr.callerHere(w, key, granted, token%block); {
	case holds:
		w.line.dismiss(w, waitsForItself())
		return stop
	case here:
		return stop
	}
	s := w.line.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.decided() { // as by Close, which may no longer wait for a call that begins
		return stop
	}
	ctx, stop = context.WithCancel(ctx)
	mgr.calls.Go(func() {
		grace := time.NewTimer(callerGrace)
		defer grace.Stop()
		select {
		case <-ctx.Done():
			return
		case <-grace.C:
		}
		ctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
		defer cancel()
		if st, err := mgr.session.Inspect(ctx, key); err == nil && mgr.keptBy(w.terms, st, granted) {
			w.line.dismiss(w, waitsForItself())
		}
	})
	return stop
}

// callerHere reports whether the grant is a lease of this process, and whether the hold with that
// number lasts and keeps w from the key.
func (mgr *Manager) callerHere(w *waiter, key string, granted, number int64) (here, holds bool) {
	s := w.line.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	lk := s.locks[key]
	if lk == nil {
		return false, false
	}
	for ln := lk.lines; ln != nil; ln = ln.next {
		for l := ln.leases; l != nil; l = l.next {
			if l.Token != granted {
				continue
			}
			for h := l.hold; h != nil; h = h.next {
				if int64(h.number) == number && h.live(time.Now()) {
					return true, w.terms.excludes() || !l.lowered && h.terms.excludes()
				}
			}
			return true, false
		}
	}
	return false, false
}

// keptBy reports whether a grant keeps a caller on these terms from the key as long as it lasts.
func (mgr *Manager) keptBy(t *Terms, st driver.State, granted int64) bool {
	if !st.Held {
		return false
	}
	if st.Holders == nil {
		return mgr.Capabilities.MayBe(granted, st.Token) && t.excludes()
	}
	for _, h := range st.Holders {
		if mgr.Capabilities.MayBe(granted, h.Token) && !h.Kept {
			return t.excludes() || excludes(h.Mode, h.Limit)
		}
	}
	return false
}

// excludes reports whether a holder on these terms is the only one.
func (t *Terms) excludes() bool { return excludes(t.Mode, t.Limit) }

func excludes(m driver.Mode, limit int) bool {
	return m == driver.Exclusive || m == driver.Semaphore && limit == 1
}

func waitsForItself() *Refusal {
	return &Refusal{Why: Deadlock, Detail: "the request comes from a call that holds the key, as its fencing token says, and waits for the answer; " +
		"let one of the two take the lock, or use core.Detach for work that the first does not wait for"}
}
