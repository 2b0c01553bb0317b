package manager

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// advance takes the next step of a line: it lets readers in, asks the store for one
// more lease, or ends.
func (ln *line) advance() {
	ln.admit()
	switch {
	case ln.first != nil:
		if ln.mayAsk() {
			ln.ask(nil)
		}
	case ln.asking == nil && ln.held == 0 && ln.returning == 0:
		ln.free()
	}
}

// admit lets readers join a share that the process has.
func (ln *line) admit() {
	if ln.mode != driver.Shared {
		return
	}
	now := time.Now()
	for ln.first != nil {
		l := ln.joint()
		if l == nil || l.refreshing || l.hold == nil {
			return
		}
		if ln.move(l, ln.situation(l, nil, now), now) != stepServe {
			return
		}
	}
}

// mayAsk reports whether the store may be asked for one more lease, for the first
// waiter.
func (ln *line) mayAsk() bool {
	if ln.asking != nil || ln.lock.behind(ln) {
		return false
	}
	ending := ln.returning - ln.unconfirmed()
	switch ln.mode {
	case driver.Shared:
		return ln.first.terms.MinHold > 0 || ln.joint() == nil
	case driver.Semaphore:
		return ln.held+ending < ln.limit
	default:
		return ln.held+ending == 0
	}
}

// situation describes a lease. ended holds the terms of the hold on it that has just ended, or
// is nil.
func (ln *line) situation(l *lease, ended *Terms, now time.Time) situation {
	mgr, since := ln.manager, at(now).since(l.heardAt)
	s := situation{
		mode: ln.mode, left: driver.Remaining(l.Deadline, now),
		held: l.hold != nil, fresh: l.handoffs < 0, spent: l.handoffs+1 >= block,
		contended: l.contended, turnOver: l.contended && (l.handoffs+1 >= turnHolds || since >= turnTime),
		stale: since > staleAfter, lowered: l.lowered, closed: l.closed,
		asking: ln.asking != nil, closing: mgr.life.isClosed(),
	}
	if ln.first != nil {
		s.next = ln.first.terms
	}
	switch {
	case l.lingers > 0:
		s.linger, s.room = l.lingers.since(at(now)), true
	case ended != nil:
		s.minHold, s.linger = ended.MinHold, ended.Linger
		s.room = s.linger > 0 && mgr.life.isOpen() && mgr.held.Load() < int64(mgr.MaxHeld)/2
	}
	return s
}

// move decides what becomes of a lease, takes the step, and returns it.
func (ln *line) move(l *lease, s situation, now time.Time) step {
	next := s.decide()
	switch next {
	case stepStay:
		l.schedule()
	case stepServe:
		ln.serve(l, now)
	case stepRefresh:
		ln.refresh(l)
	case stepReplace:
		ln.replace(l)
	case stepReturn:
		ln.returnLease(l, s.minHold)
	case stepLinger:
		ln.linger(l, s.linger, now)
	case stepClose:
		l.closed = true
		l.schedule()
	}
	return next
}

// take adds a lease that was granted, and decides what becomes of it.
func (ln *line) take(l *lease, now time.Time) {
	l.next, ln.leases = ln.leases, l
	ln.held++
	ln.move(l, ln.situation(l, nil, now), now)
}

// serve grants the line's first waiter a hold on l, a lease that the process has. In a line of
// readers it also grants one to each waiter behind that may join. At MaxHeld it refuses the waiter and
// all behind it, and returns the lease if nobody holds it then.
func (ln *line) serve(l *lease, now time.Time) {
	mgr, fresh := ln.manager, l.handoffs < 0
	for more := true; more; more = ln.follows(l, fresh, now) {
		if mgr.held.Add(1) > int64(mgr.MaxHeld) { // others have come since the waiter joined
			mgr.held.Add(-1)
			ln.refuseIf(always, mgr.atCap())
			ln.left()
			break
		}
		w := ln.first
		if l.hold == nil && !fresh {
			w.terms.Signals.HandedOn(mgr.ctx)
		}
		ln.remove(w)
		h := &l.single
		if h.lease != nil {
			h = new(Hold)
		}
		l.handoffs++
		*h = Hold{lease: l, terms: w.terms, number: l.handoffs, uses: 1, next: l.hold}
		if w.trace != nil {
			h.more().trace = w.trace
		}
		h.begin(now)
		l.hold = h
		l.closed = l.closed || w.terms.MinHold > 0
		w.decide(h, nil)
	}
	if l.hold == nil {
		ln.returnLease(l, 0)
		return
	}
	if l.renewable() {
		l.planHold(l.ttl(), now)
	}
	l.schedule()
	if ln.full() {
		ln.refuseTries(0)
		ln.bound()
	}
}

// follows reports whether the next waiter holds together with one who has just begun to, on a
// lease that was fresh before.
func (ln *line) follows(l *lease, fresh bool, now time.Time) bool {
	if ln.mode != driver.Shared {
		return false
	}
	s := ln.situation(l, nil, now)
	s.fresh = fresh
	return s.follows()
}

// refresh renews a lease before it is handed on, or before others join those who
// hold it.
func (ln *line) refresh(l *lease) {
	l.refreshing = true
	ttl := ln.first.terms.TTL
	renewal := l.renewal(ttl)
	mgr := ln.manager
	mgr.calls.Go(func() {
		ctx, cancel := context.WithTimeout(mgr.ctx, mgr.StoreTimeout)
		defer cancel()
		sent := time.Now()
		r := mgr.session.Renew(ctx, []driver.Renewal{renewal})[0]
		mgr.heard(mgr.ctx, r.Err)
		ln.shard.mu.Lock()
		defer ln.shard.mu.Unlock()
		l.refreshing = false
		if l.current() {
			ln.refreshed(l, r, ttl, sent)
		}
	})
}

// refreshed handles the result of a refresh.
func (ln *line) refreshed(l *lease, r driver.Renewed, ttl time.Duration, sent time.Time) {
	now := time.Now()
	if r.Err == nil {
		l.extend(r, ttl, sent)
	}
	switch {
	case errors.Is(r.Err, driver.ErrNotHeld):
		ln.lose(l, notThere)
		return
	case driver.Remaining(l.Deadline, now) <= 0:
		ln.lose(l, timeOver)
		return
	}
	s := ln.situation(l, nil, now)
	s.renewed, s.failed = true, r.Err != nil
	ln.move(l, s, now)
	ln.advance()
}

// replace ends a lease and asks for the next one in the same step.
func (ln *line) replace(l *lease) {
	old := l.ending(0)
	ln.unlink(l, time.Now())
	ln.ask(&old)
}

// linger keeps a lease that nobody holds for d. Lingering ends earlier with the lease, with
// the manager, or as soon as another process is heard to wait.
func (ln *line) linger(l *lease, d time.Duration, now time.Time) {
	ln.manager.held.Add(1) // a lingering lease counts as held, see situation
	l.lingers = at(now).add(d)
	l.schedule()
}

// reuse gives a lingering lease to w, if w has just joined as the first of the line.
func (ln *line) reuse(w *waiter) {
	if l := ln.lingering(); l != nil && ln.first == w {
		l.endLinger()
		l.renewAt = 0 // nobody has renewed it meanwhile
		now := time.Now()
		ln.move(l, ln.situation(l, nil, now), now)
	}
}

// returnLingering returns the lingering leases of all lines except used.
func (lk *lock) returnLingering(used *line) {
	for ln := lk.lines; ln != nil; ln = ln.next {
		if l := ln.lingering(); l != nil && ln != used {
			ln.returnLease(l, 0)
		}
	}
}

// returnUnwanted returns a lease that lingers, if another process wants it or its time is
// over.
func (l *lease) returnUnwanted(now time.Time) {
	if l.lingers == 0 {
		return
	}
	if s := l.line.situation(l, nil, now); s.decide() == stepReturn {
		l.line.returnLease(l, 0)
	}
}

// returnLease returns a lease to the store in the background. One that lingers is in nobody's way, also
// while it is returned.
func (ln *line) returnLease(l *lease, keep time.Duration) {
	now, lingered := time.Now(), l.lingers > 0
	ln.unlink(l, now)
	ln.returning++
	if lingered {
		ln.noteSent(l, keep)
	}
	ln.manager.calls.Go(func() { _ = ln.returnNow(context.Background(), l, keep, now, nil) })
}

// returnNow returns an unlinked lease at the store, within ctx and StoreTimeout, and then
// advances the line. If the store does not confirm it in time, the releaser goes on in the
// background.
func (ln *line) returnNow(ctx context.Context, l *lease, keep time.Duration, now time.Time, written func()) error {
	mgr, end := ln.manager, l.ending(keep)
	end.Written = written
	err := mgr.returnLease(ctx, end, now)
	ln.leaseReturned(l, end, err)
	return err
}

// leaseReturned handles the store's answer to the return of an unlinked lease.
func (ln *line) leaseReturned(l *lease, end driver.Ending, err error) {
	mgr := ln.manager
	if err != nil && !errors.Is(err, driver.ErrNotHeld) {
		mgr.releaser.add(end, l.length)
	}
	ln.shard.mu.Lock()
	ln.returning--
	ln.noteAnswered(l)
	ln.advance()
	ln.shard.mu.Unlock()
}

// returnLease returns a lease to the store, within ctx and StoreTimeout.
func (mgr *Manager) returnLease(ctx context.Context, end driver.Ending, now time.Time) (err error) {
	defer func() { mgr.heard(ctx, err) }()
	if mgr.prompt != nil && ctx.Err() == nil && leaves(ctx, driver.Promptness) {
		if done, err := mgr.prompt.End(end, now); done {
			return err
		}
	}
	rctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
	defer cancel()
	return mgr.session.Release(rctx, []driver.Ending{end})[0]
}

// leaves reports whether ctx has at least d left.
func leaves(ctx context.Context, d time.Duration) bool {
	end, ends := ctx.Deadline()
	return !ends || time.Until(end) >= d
}

// unlink removes a lease from its line and from the renewer. It does not ask the store.
func (ln *line) unlink(l *lease, now time.Time) {
	link := &ln.leases
	for *link != l {
		link = &(*link).next
	}
	*link = l.next
	l.unlinked = true
	l.endLinger()
	ln.held--
	ln.lastHeld = at(now)
	ln.manager.renewer.remove(l)
	ln.manager.changed(ln.lock)
}

// lose ends a lease that is gone at the store or past its deadline, and every hold on it. why is for the
// log.
func (ln *line) lose(l *lease, why string) {
	ln.unlink(l, time.Now())
	ln.manager.releaser.add(l.ending(0), l.length)
	for h := l.hold; h != nil; h = h.next {
		h.endLost(why)
	}
	ln.advance()
}

// loseExpired ends a hold whose time is over, and the lease with it unless others share
// that.
func (l *lease) loseExpired(h *Hold, now time.Time) {
	if driver.Remaining(l.Deadline, now) > 0 && (l.hold != h || h.next != nil) {
		h.endLost(timeOver)
		return
	}
	l.line.lose(l, timeOver)
}
