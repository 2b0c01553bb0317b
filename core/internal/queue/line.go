package queue

import (
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// line is one kind of use of one key in this process: the callers that want it, in
// order, and how the process stands with the store about it. Everything in it is
// guarded by the mutex of its shard.
//
// Of an exclusive key at most one of asking, leases and ending is there at a time:
// the store is being asked for a lease, the process has one, or it is giving one
// back. Of a semaphore the process has a lease for each of its holders. Of a share
// it has one for as many as come while nobody else waits, and asks for the next
// when others do. advance takes the next step.
type line struct {
	queue *Queue
	shard *shard
	lock  *lock
	next  *line // of the lock
	kind
	lineState
}

// lineState is what changes of a line.
type lineState struct {
	first, last *waiter
	asking      *request
	leases      *lease   // linked
	held        int32    // leases
	ending      int32    // leases that are being given back
	sent        *lease   // of those: whose release was sent, for the next request to follow; linked
	followed    int32    // of those: that were, until they are answered
	trouble     *trouble // nil: the store has answered
	lastHeld    instant  // when the key was last known to be taken, before the present step
}

// join puts w at the end of its line, or decides it on the spot. A refusal says that
// there can be no such line. If w is the one to ask the store and willing to do so
// itself, join returns the request that it begins.
func (q *Queue) join(w *waiter, key string, willing bool) (*request, *Refusal) {
	s := q.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	lk := s.lockOf(key)
	if why := lk.conflict(w.terms.kind()); why != "" {
		return nil, &Refusal{Why: Mismatch, Detail: why}
	}
	ln := q.lineOf(s, lk, w.terms.kind())
	ln.push(w)
	switch {
	case q.life.isClosed():
		ln.fail(w, refuse(Closed))
	case lk.waiting > q.MaxWaiters:
		ln.fail(w, &Refusal{Why: Busy, Detail: fmt.Sprintf("%d callers of this process wait for the key already, which is the cap", q.MaxWaiters)})
	case q.held.Load() >= int64(q.MaxHeld):
		ln.fail(w, &Refusal{Why: Unavailable, Detail: fmt.Sprintf("this engine holds %d leases, which is the cap", q.MaxHeld)})
	default:
		lk.recall(ln)
		ln.reuse(w)
		if w.try() && !w.decided() && ln.taken() && (ln.first != w || !ln.vacant()) {
			ln.fail(w, refuse(Busy))
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
	case driver.Shared:
		return false
	case driver.Semaphore:
		return ln.held >= ln.limit
	default:
		return ln.held > 0
	}
}

// vacant reports whether the process has the lease of the key, and nobody who holds it
// yet: it is about to go to the first waiter.
func (ln *line) vacant() bool {
	return ln.mode == driver.Exclusive && ln.leases != nil && ln.leases.hold == nil
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
func (ln *line) fail(w *waiter, why *Refusal) {
	ln.remove(w)
	w.decide(nil, why)
}

// failIf sends away the waiters that match.
func (ln *line) failIf(match func(*waiter) bool, why *Refusal) {
	for w := ln.first; w != nil; {
		next := w.next
		if match(w) {
			ln.fail(w, why)
		}
		w = next
	}
}

func always(*waiter) bool { return true }

// failTries sends away those who would not wait, since the key is taken.
func (ln *line) failTries(retryAfter time.Duration) {
	why := refuse(Busy)
	if retryAfter != 0 {
		why = &Refusal{Why: Busy, RetryAfter: retryAfter}
	}
	ln.failIf((*waiter).try, why)
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
		w.refusal = refuse(Busy)
	case ln.taken(), ln.fault() == nil && !w.try() && ln.lastHeld > at(w.since):
		w.refusal = refuse(Timeout)
	case ln.fault() != nil:
		w.refusal = unavailable(ln.fault())
	default:
		w.refusal = unavailable(ErrSilent)
	}
	if ln.first == nil && ln.asking != nil {
		ln.asking.cancel()
	}
	ln.advance()
}

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

// joint returns the share that readers may join, or nil.
func (ln *line) joint() *lease {
	for l := ln.leases; l != nil; l = l.next {
		if !l.closed && !l.contended && l.handoffs+1 < block {
			return l
		}
	}
	return nil
}

// mayAsk reports whether the store may be asked for one more lease, for the first
// waiter.
func (ln *line) mayAsk() bool {
	if ln.asking != nil || ln.lock.behind(ln) {
		return false
	}
	ending := ln.ending - ln.unconfirmed()
	switch ln.mode {
	case driver.Shared:
		return ln.first.terms.MinHold > 0 || ln.joint() == nil
	case driver.Semaphore:
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

// evict fails the waiters of a line that is closed, and ends its holds. It returns the leases
// that are to be released at the store.
func (ln *line) evict() []driver.Ending {
	ln.failIf(always, refuse(Closed))
	if ln.asking != nil {
		ln.asking.cancel()
	}
	var ends []driver.Ending
	for l := ln.leases; l != nil; l = l.next {
		var keep time.Duration
		for h := l.hold; h != nil; h = h.next {
			keep = max(keep, h.terms.MinHold)
			h.finish(Closed)
		}
		ends = append(ends, l.ending(keep))
		ln.forget(l, time.Now())
	}
	ln.advance()
	return ends
}
