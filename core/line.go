package core

import (
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// line is one kind of use of one key in this process: the callers that want it, in
// order, and how the process stands with the store about it. Everything in it is
// guarded by the mutex of its shard.
//
// Of an exclusive key at most one of asking, tenures and ending is there at a time:
// the store is being asked for a lease, the process has one, or it is giving one
// back. Of a semaphore the process has a lease for each of its holders. Of a share
// it has one for as many as come while nobody else waits, and asks for the next
// when others do. advance takes the next step.
type line struct {
	engine *Engine
	shard  *shard
	lock   *lock
	next   *line // of the lock
	kind
	standing
}

// standing is what changes of a line.
type standing struct {
	first, last *waiter
	asking      *request
	tenures     *tenure  // linked
	held        int32    // tenures
	ending      int32    // leases that are being given back
	sent        *tenure  // of those: whose release was sent, for the next request to follow; linked
	followed    int32    // of those: that were, until they are answered
	trouble     *trouble // nil: the store has answered
	lastHeld    instant  // when the key was last known to be taken, before the present step
}

// join puts w at the end of its line, or decides it on the spot. An error says that
// there can be no such line. If w is the one to ask the store and willing to do so
// itself, join returns the request that it begins.
func (e *Engine) join(w *waiter, key string, willing bool) (*request, error) {
	s := e.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	lk := s.lockOf(key)
	if why := lk.conflict(w.plan.kind()); why != "" {
		return nil, e.failure("acquire", w.plan.Name, ErrPolicy).because("%s", why)
	}
	ln := e.lineOf(s, lk, w.plan.kind())
	ln.push(w)
	switch {
	case e.life.isClosed():
		ln.fail(w, e.failure("acquire", w.plan.Name, ErrClosed))
	case lk.waiting > e.maxWaiters:
		ln.fail(w, e.failure("acquire", w.plan.Name, ErrBusy).because("%d callers of this process wait for the key already, which is the cap", e.maxWaiters))
	case e.held.Load() >= int64(e.maxHeld):
		ln.fail(w, e.failure("acquire", w.plan.Name, ErrUnavailable).because("this engine holds %d leases, which is the cap", e.maxHeld))
	default:
		lk.recall(ln)
		ln.reuse(w)
		if w.try() && !w.decided() && ln.taken() && (ln.first != w || !ln.vacant()) {
			ln.fail(w, ln.busy(w, 0))
		}
	}
	if willing && ln.first == w {
		if ln.admit(); ln.first == w && ln.mayAsk() {
			return ln.newRequest(nil), nil
		}
	}
	ln.advance()
	w.stay()
	return nil, nil
}

// taken reports whether it is known that no more can hold, for those of this
// process or of another.
func (ln *line) taken() bool {
	return ln.full() || ln.asking != nil && ln.asking.queued
}

// full reports whether no more of this process can hold.
func (ln *line) full() bool {
	switch ln.mode {
	case Shared:
		return false
	case Semaphore:
		return ln.held >= ln.limit
	default:
		return ln.held > 0
	}
}

func (ln *line) push(w *waiter) {
	w.line, w.prev = ln, ln.last
	if ln.last != nil {
		ln.last.next = w
	} else {
		ln.first = w
	}
	ln.last = w
	ln.lock.waiting++
}

func (ln *line) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ln.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ln.last = w.prev
	}
	w.prev, w.next = nil, nil
	ln.lock.waiting--
}

// fail sends a waiter away.
func (ln *line) fail(w *waiter, err error) {
	ln.remove(w)
	w.decide(nil, err)
}

// failIf sends away the waiters that match.
func (ln *line) failIf(match func(*waiter) bool, why func(*waiter) error) {
	for w := ln.first; w != nil; {
		next := w.next
		if match(w) {
			ln.fail(w, why(w))
		}
		w = next
	}
}

// failTries sends away those who would not wait, since the key is taken.
func (ln *line) failTries(retryAfter time.Duration) {
	ln.failIf((*waiter).try, func(w *waiter) error { return ln.busy(w, retryAfter) })
}

func (ln *line) busy(w *waiter, retryAfter time.Duration) error {
	err := ln.engine.failure("acquire", w.plan.Name, ErrBusy)
	err.RetryAfter = retryAfter
	return err
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
		w.err = ln.busy(w, 0)
	case ln.taken(), ln.fault() == nil && !w.try() && ln.lastHeld > at(w.since):
		w.err = ln.engine.failure("acquire", w.plan.Name, ErrTimeout)
	case ln.fault() != nil:
		w.err = ln.engine.unavailable("acquire", w.plan.Name, ln.fault())
	default:
		w.err = ln.engine.unavailable("acquire", w.plan.Name, errSilent)
	}
	if ln.first == nil && ln.asking != nil {
		ln.asking.cancel()
	}
	ln.advance()
}

// errSilent is the cause when the store has said nothing at all.
var errSilent = errors.New("no answer from the store")

// advance takes the next step of a line: it lets readers in, asks the store for one
// more lease, or ends.
func (ln *line) advance() {
	ln.admit()
	switch {
	case ln.first != nil:
		if ln.mayAsk() {
			ln.ask(nil)
		}
	case ln.asking == nil && ln.held == 0 && ln.ending == 0:
		ln.drop()
	}
}

// mayAsk reports whether the store may be asked for one more lease, for the first
// waiter.
func (ln *line) mayAsk() bool {
	if ln.asking != nil || ln.lock.behind(ln) {
		return false
	}
	ending := ln.ending - ln.unconfirmed()
	switch ln.mode {
	case Shared:
		return ln.first.plan.MinHold > 0 || ln.joint() == nil
	case Semaphore:
		return ln.held+ending < ln.limit
	default:
		return ln.held+ending == 0
	}
}

// wantsToWait reports whether any caller would wait for a key that is taken.
func (ln *line) wantsToWait() bool {
	for w := ln.first; w != nil; w = w.next {
		if !w.try() {
			return true
		}
	}
	return false
}

// serve lets the first waiter hold, on a lease that the process has, and with it all
// that may share that.
func (ln *line) serve(tn *tenure, now time.Time) {
	joined, fresh := tn.hold != nil, tn.handoffs < 0
	if !joined && !fresh {
		ln.first.plan.signals.HandedOn(ln.engine.ctx)
	}
	for more := true; more; more = ln.follows(tn, fresh, now) {
		w := ln.first
		ln.remove(w)
		h := &tn.single
		if h.tenure != nil {
			h = new(hold)
		}
		tn.handoffs++
		*h = hold{tenure: tn, plan: w.plan, number: tn.handoffs, uses: 1, next: tn.hold}
		h.begin(now)
		tn.hold = h
		tn.closed = tn.closed || w.plan.MinHold > 0
		ln.engine.held.Add(1)
		w.decide(h, nil)
	}
	if ttl := tn.ttl(); !joined || at(now).add(ttl/3) < tn.renewAt {
		tn.planRenewal(ttl, now)
	}
	tn.schedule()
	if ln.full() {
		ln.failTries(0)
	}
}

// follows reports whether the next waiter holds together with one who has just begun to, on a
// lease that was fresh before.
func (ln *line) follows(tn *tenure, fresh bool, now time.Time) bool {
	if ln.mode != Shared {
		return false
	}
	s := ln.situation(tn, nil, now)
	s.fresh = fresh
	return s.follows()
}

// driverRequest is a fresh request for the first waiter, or whoever is first by then.
func (ln *line) driverRequest() driver.Request {
	pl := ln.first.plan
	return driver.Request{ID: driver.ID{Key: ln.lock.key, Owner: ln.shard.newOwner()}, Mode: pl.Mode, Limit: pl.Limit, TTL: pl.TTL, Wait: ln.wantsToWait()}
}
