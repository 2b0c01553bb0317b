package manager

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// waiters recycles the waiters that never had to wait: nothing else refers to them any more.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

// join puts w at the end of its line, or decides it on the spot. It returns a refusal if key
// cannot have such a line. If w is the one to ask the store and its goroutine is willing to,
// join returns the request that this goroutine has to begin.
func (mgr *Manager) join(w *waiter, key string, willing bool) (*request, *Refusal) {
	s := mgr.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	lk := s.lockOf(key)
	if why := lk.conflict(w.terms.kind()); why != "" {
		return nil, &Refusal{Why: Mismatch, Detail: why}
	}
	ln := mgr.lineOf(s, lk, w.terms.kind())
	ln.push(w)
	switch {
	case mgr.life.isClosed():
		ln.fail(w, refuse(Closed))
	case int(lk.waiting) > mgr.MaxWaiters:
		ln.fail(w, &Refusal{Why: Busy, Holder: ln.holder(), Detail: fmt.Sprintf("%d callers of this process wait for the key already, which is the cap", mgr.MaxWaiters)})
	case mgr.held.Load() >= int64(mgr.MaxHeld):
		ln.fail(w, mgr.atCap())
	default:
		lk.recall(ln)
		ln.reuse(w)
		if w.try() && !w.decided() && ln.taken() && (ln.first != w || !ln.vacant()) {
			ln.fail(w, ln.refuse(Busy))
		}
	}
	if willing && ln.first == w {
		ln.admit()
		if ln.first == w && ln.mayAsk() {
			return ln.newRequest(nil), nil
		}
	}
	ln.advance()
	w.stay()
	if !w.decided() {
		w.follow(ln.holder)
	}
	if !w.decided() && ln.full() {
		for l := ln.leases; l != nil; l = l.next {
			l.tellContended()
		}
	}
	return nil, nil
}

// await calls w.await, but first refuses a call that would wait for itself.
func (mgr *Manager) await(ctx context.Context, w *waiter, key string, patience time.Duration, held Held) {
	if o := mgr.observer.Load(); o != nil {
		(*o).Note(Event{Kind: EventWaiting, Key: key, Policy: w.terms.Name})
	}
	if !w.try() && mgr.Carried != nil {
		if token := mgr.Carried(ctx, key); token > 0 {
			defer mgr.watchCaller(ctx, w, key, token)()
		}
	}
	if w.try() || held == nil {
		w.await(ctx, patience)
		return
	}
	holds := slices.DeleteFunc(held.Holds(nil), func(h *Hold) bool {
		_, live := h.State()
		return !live || h.lease.line.manager != mgr
	})
	if len(holds) > 0 {
		mgr.circles.enter(w, key, holds)
		defer mgr.circles.leave(w, key)
	}
	w.await(ctx, patience)
}

// await blocks until w is decided, at most until patience has passed since it joined.
func (w *waiter) await(ctx context.Context, patience time.Duration) {
	var late <-chan time.Time
	if patience != Forever {
		t := time.NewTimer(patience - time.Since(w.since))
		defer t.Stop()
		late = t.C
	}
	w.terms.Signals.Waiting(ctx, 1)
	defer w.terms.Signals.Waiting(ctx, -1)
	select {
	case <-w.ready:
	case <-late:
		w.line.leave(w, false)
	case <-ctx.Done():
		w.line.leave(w, true)
	}
}

// leave withdraws a caller whose patience or context has ended, unless it has
// been decided by then. The request at the store passes to the next caller in
// the line; the last one ends it.
func (ln *line) leave(w *waiter, cancelled bool) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	if w.decided() {
		return
	}
	ln.remove(w)
	switch {
	case cancelled:
		// The caller states its context's error.
	case ln.taken() && w.try():
		w.refusal = ln.refuse(Busy)
	case ln.taken(), ln.fault() == nil && !w.try() && ln.lastHeld > at(w.since):
		w.refusal = ln.refuse(Timeout)
	case ln.fault() != nil:
		w.refusal = unavailable(ln.fault())
	case ln.asking != nil:
		w.refusal = unavailable(cmp.Or(ln.asking.failed, ErrSilent))
	default:
		w.refusal = unavailable(ErrSilent)
	}
	ln.withdrawn()
}

// dismiss sends away a caller that waits, unless it has been decided by then.
func (ln *line) dismiss(w *waiter, why *Refusal) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	if w.decided() {
		return
	}
	ln.fail(w, why)
	ln.withdrawn()
}

// withdrawn ends the request if the last caller has left the line, and lets the line go on.
func (ln *line) withdrawn() {
	if ln.first == nil && ln.asking != nil {
		ln.asking.cancel()
	}
	ln.advance()
}
