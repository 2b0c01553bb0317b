package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Open returns a manager on a driver. It does no I/O. The error is the driver's.
func Open(c Config) (*Manager, error) {
	mgr := &Manager{Config: c, seed: maphash.MakeSeed()}
	for i := range mgr.shards {
		mgr.shards[i].locks = map[string]*lock{}
	}
	mgr.ctx, mgr.cancel = context.WithCancel(context.Background())
	var err error
	if mgr.session, err = c.Driver.Open(driver.Config{Sink: events{mgr}, StoreTimeout: c.StoreTimeout, Identity: c.Identity}); err != nil {
		mgr.cancel()
		return nil, err
	}
	mgr.prompt, _ = mgr.session.(driver.Prompt)
	mgr.all, _ = mgr.session.(driver.PromptAll)
	_, mgr.pooled = c.Driver.(driver.Pooled)
	mgr.renewer.init(mgr)
	mgr.releaser.init(mgr)
	mgr.workers.Go(mgr.renewer.run)
	mgr.workers.Go(mgr.releaser.run)
	return mgr, nil
}

// Acquire takes the lock of a key. Patience bounds the wait, the store's answer included; it
// must be positive, also if the terms' Wait is 0. Held is what the call holds already; nil is
// nothing. The hold is nil if and only if there is a refusal.
func (mgr *Manager) Acquire(ctx context.Context, t *Terms, key string, patience time.Duration, held Held) (*Hold, *Refusal) {
	start := time.Now()
	sctx, sp := t.Signals.Acquire(ctx)
	h, r := mgr.wait(sctx, t, key, patience, start, held, sp, false)
	if r != nil {
		t.Signals.Refused(sctx, sp, time.Since(start), r.Outcome(signals.Acquired))
		mgr.noteRefused(t, key, r, start)
		return nil, r
	}
	h.granted(ctx, sctx, sp, start)
	return h, nil
}

// granted reports in metrics and spans that a caller who came at start got the hold. sctx and sp
// are of the acquisition, which began in ctx.
func (h *Hold) granted(ctx, sctx context.Context, sp signals.Span, start time.Time) {
	h.terms.Signals.Granted(sctx, sp, h.since.since(at(start)), h.Token())
	h.span = h.terms.Signals.Hold(ctx, sp)
	h.span.Token(h.Token())
	if o := h.lease.line.manager.observer.Load(); o != nil {
		h.noteGranted(*o, h.since.since(at(start)))
	}
}

// wait is Acquire without its metrics, for a caller who came at start. sp is its span. again says
// that it is part of a call that was counted in.
func (mgr *Manager) wait(ctx context.Context, t *Terms, key string, patience time.Duration, start time.Time, held Held, sp signals.Span, again bool) (*Hold, *Refusal) {
	if ctx.Err() != nil {
		return nil, overdue(ctx)
	}
	if !mgr.life.enter(again) {
		return nil, refuse(Closed)
	}
	w := waiters.Get().(*waiter)
	*w = waiter{terms: t, since: start, trace: (*driver.Trace)(sp.Trace())}
	rq, refused := mgr.join(w, key, mgr.prompt != nil && patience >= driver.Promptness && leaves(ctx, driver.Promptness))
	if refused != nil {
		mgr.life.leave()
		return nil, refused
	}
	if rq != nil {
		w.line.begin(rq, w)
	}
	if w.ready != nil {
		mgr.await(ctx, w, key, patience, held)
	}
	h, refused := w.hold, w.refusal
	if w.behind != nil {
		link(sp, *w.behind)
	}
	if refused != nil && (w.behind == nil || !refused.Holder.Same(*w.behind)) {
		link(sp, refused.Holder)
	}
	if w.ready == nil {
		waiters.Put(w)
	}
	switch {
	case h == nil:
		mgr.life.leave()
		if ctx.Err() != nil {
			return nil, overdue(ctx)
		}
		mgr.heardLate(ctx, refused, start)
		return nil, refused
	case ctx.Err() != nil:
		releaseBehind([]*Hold{h}, 0)
		return nil, overdue(ctx)
	}
	return h, nil
}

// Ask calls do with the session, and with a context that ends after StoreTimeout. It returns why
// the store did not do what it was asked.
func (mgr *Manager) Ask(ctx context.Context, do func(context.Context, driver.Session) error) *Refusal {
	if mgr.life.isClosed() {
		return refuse(Closed)
	}
	sctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
	defer cancel()
	err := do(sctx, mgr.session)
	mgr.heard(ctx, err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return overdue(ctx)
	case errors.Is(err, driver.ErrClosed):
		return refuse(Closed)
	}
	return unavailable(err)
}

// Lose loses the leases of a key up to a token, which the store has ended: its push comes
// later, or never. A grant that is on its way counts too.
func (mgr *Manager) Lose(key string, upTo int64) {
	s := mgr.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	lk := s.locks[key]
	if lk == nil {
		return
	}
	var over []*lease // collected first, since lose changes the lists
	for ln := lk.lines; ln != nil; ln = ln.next {
		if ln.asking != nil {
			ln.asking.lostUpTo = max(ln.asking.lostUpTo, upTo)
		}
		for l := ln.leases; l != nil; l = l.next {
			if l.Token <= upTo {
				over = append(over, l)
			}
		}
	}
	for _, l := range over {
		if l.current() {
			l.line.lose(l, byForce)
		}
	}
}

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
		ln.refuse(w, refuse(Closed))
	case int(lk.waiting) > mgr.MaxWaiters:
		ln.refuse(w, &Refusal{Why: Busy, Holder: ln.holder(), Detail: fmt.Sprintf("%d callers of this process wait for the key already, which is the cap", mgr.MaxWaiters)})
	case lk.tooMany(w):
		ln.refuse(w, ln.crowded(w.terms.MaxWaiting))
	case mgr.held.Load() >= int64(mgr.MaxHeld):
		ln.refuse(w, mgr.atCap())
	default:
		lk.returnLingering(ln)
		ln.reuse(w)
		if w.try() && !w.decided() && ln.taken() && (ln.first != w || !ln.vacant()) {
			ln.refuse(w, ln.refusal(Busy))
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
		(*o).Note(Event{Kind: EventWaiting, Key: key, Terms: w.terms})
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
		w.refusal = ln.refusal(Busy)
	case ln.taken(), ln.fault() == nil && !w.try() && ln.lastHeld > at(w.since):
		w.refusal = ln.refusal(Timeout)
	case ln.fault() != nil:
		w.refusal = unavailable(ln.fault())
	case ln.asking != nil:
		w.refusal = unavailable(cmp.Or(ln.asking.failed, ErrSilent))
	default:
		w.refusal = unavailable(ErrSilent)
	}
	ln.left()
}

// refuseUndecided sends away a caller that waits, unless it has been decided by then.
func (ln *line) refuseUndecided(w *waiter, why *Refusal) {
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	if w.decided() {
		return
	}
	ln.refuse(w, why)
	ln.left()
}

// left ends the request if the last caller has left the line, and lets the line go on.
func (ln *line) left() {
	if ln.first == nil && ln.asking != nil {
		ln.asking.cancel()
	}
	ln.advance()
}

// A service that holds a key and calls another one, which asks for the same key, waits for
// itself. The call carries the fencing token of the hold, and so the second service can tell. It
// refuses the wait if the hold with that token keeps the key from the caller as long as it lasts.
//
// A hold of this process is known for certain. Of another process's, the store knows only the
// grant. Its process may have ended the hold and kept the lease, for a later one or because it
// lingers. But as soon as it hears that others wait, it returns such a lease, or hands it on
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
		w.line.refuseUndecided(w, waitsForItself())
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
			w.line.refuseUndecided(w, waitsForItself())
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
