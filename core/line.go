package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// line is one key in this process: the callers that want it, in order, and how
// the process stands with the store about it. Everything in it is guarded by the
// mutex of its shard.
//
// At most one of asking, tenure and ending is set: the store is being asked for
// a lease, the process has one, or it is giving one back. When none is, advance
// takes the next step.
type line struct {
	engine *Engine
	shard  *shard
	key    string // with namespace

	first, last *waiter
	waiting     int

	asking   *enrolment
	tenure   *tenure
	ending   bool
	failures int       // attempts to reach the store since the last answer
	fault    error     // of the latest of them
	lastHeld time.Time // when the key was last known to be taken, before the present step
}

// waiter is a caller in the line. Once decided, ready holds one element and
// either hold or err is set.
type waiter struct {
	line       *line
	prev, next *waiter
	plan       *plan
	since      time.Time
	ready      chan struct{}
	hold       *hold
	err        error
}

// try reports whether the waiter leaves as soon as the key is known to be taken.
func (w *waiter) try() bool { return w.plan.Wait == 0 }

func (w *waiter) decided() bool { return w.hold != nil || w.err != nil }

// wait queues the caller for key and returns its hold.
func (e *Engine) wait(ctx context.Context, pl *plan, key string) (*hold, error) {
	if ctx.Err() != nil {
		return nil, e.overdue(ctx, "acquire", pl.Name)
	}
	if !e.life.enter() {
		return nil, e.failure("acquire", pl.Name, ErrClosed)
	}
	w := &waiter{plan: pl, since: time.Now(), ready: make(chan struct{}, 1)}
	e.join(w, key)
	patience := pl.Wait
	if w.try() {
		patience = e.timeout // the store's time to say whether the key is taken
	}
	var late <-chan time.Time
	if patience != Forever {
		t := time.NewTimer(patience)
		defer t.Stop()
		late = t.C
	}
	pl.signals.waiting.Add(ctx, 1, pl.signals.base...)
	defer pl.signals.waiting.Add(ctx, -1, pl.signals.base...)
	select {
	case <-w.ready:
	case <-late:
		w.line.leave(w, false)
	case <-ctx.Done():
		w.line.leave(w, true)
	}
	switch {
	case w.hold == nil:
		e.life.leave()
		if ctx.Err() != nil {
			return nil, e.overdue(ctx, "acquire", pl.Name)
		}
		return nil, w.err
	case ctx.Err() != nil:
		w.hold.abandon()
		return nil, e.overdue(ctx, "acquire", pl.Name)
	}
	return w.hold, nil
}

// join puts w at the end of key's line, or decides it on the spot.
func (e *Engine) join(w *waiter, key string) {
	s := e.shardOf(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	ln := s.lines[key]
	if ln == nil {
		ln = &line{engine: e, shard: s, key: key}
		s.lines[key] = ln
	}
	ln.push(w)
	switch {
	case e.life.isClosed():
		ln.fail(w, e.failure("acquire", w.plan.Name, ErrClosed))
	case ln.waiting > e.maxWaiters:
		ln.fail(w, e.failure("acquire", w.plan.Name, ErrBusy).because("%d callers of this process wait for the key already, which is the cap", e.maxWaiters))
	case e.held.Load() >= int64(e.maxHeld):
		ln.fail(w, e.failure("acquire", w.plan.Name, ErrUnavailable).because("this engine holds %d leases, which is the cap", e.maxHeld))
	case w.try() && ln.taken():
		ln.fail(w, ln.busy(w, 0))
	}
	ln.advance()
}

// taken reports whether the key is known to be held, by this process or another.
func (ln *line) taken() bool {
	return ln.tenure != nil || ln.asking != nil && ln.asking.queued
}

func (ln *line) push(w *waiter) {
	w.line, w.prev = ln, ln.last
	if ln.last != nil {
		ln.last.next = w
	} else {
		ln.first = w
	}
	ln.last = w
	ln.waiting++
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
	ln.waiting--
}

// fail sends a waiter away.
func (ln *line) fail(w *waiter, err error) {
	ln.remove(w)
	w.err = err
	w.ready <- struct{}{}
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
// been decided by then. The enrolment at the store passes to the next caller in
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
	case ln.taken(), ln.fault == nil && !w.try() && ln.lastHeld.After(w.since):
		w.err = ln.engine.failure("acquire", w.plan.Name, ErrTimeout)
	case ln.fault != nil:
		w.err = ln.engine.unavailable("acquire", w.plan.Name, ln.fault)
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

// advance takes the next step of a line that has no business with the store.
func (ln *line) advance() {
	switch {
	case ln.asking != nil || ln.tenure != nil || ln.ending:
	case ln.first != nil:
		ln.ask(nil)
	case ln.shard.lines[ln.key] == ln:
		delete(ln.shard.lines, ln.key)
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

// serve lets the first waiter hold, on a lease that the process has.
func (ln *line) serve(tn *tenure, now time.Time) {
	w := ln.first
	ln.remove(w)
	h := &hold{tenure: tn, plan: w.plan, token: tn.nextToken(), uses: 1, since: now}
	tn.hold = h
	tn.planRenewal(w.plan.TTL, now)
	tn.schedule()
	ln.engine.held.Add(1)
	w.hold = h
	w.ready <- struct{}{}
	ln.failTries(0)
}

// request is a fresh request for the first waiter, or whoever is first by then.
func (ln *line) request() driver.Request {
	pl := ln.first.plan
	return driver.Request{ID: driver.ID{Key: ln.key, Owner: newOwner()}, Mode: pl.Mode, Limit: pl.Limit, TTL: pl.TTL, Wait: ln.wantsToWait()}
}
