package manager

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// queued reports whether the store has said that the key is taken.
func (rq *request) queued() bool { return rq.queuedAt > 0 }

// step counts one more step of the shard's requests. s.mu is held.
func (s *shard) step() uint64 {
	s.steps++
	return s.steps
}

// requests keeps requests for reuse. Only those that begin has answered come back: nothing else
// refers to them.
var requests = sync.Pool{New: func() any { return new(request) }}

// newRequest makes a request for the first waiter. The caller passes it to begin or to run.
// replace, if not nil, is the lease of this process that ends with the request.
func (ln *line) newRequest(replace *driver.Ending) *request {
	rq := requests.Get().(*request)
	*rq = request{Request: ln.driverRequest(), began: ln.shard.step()}
	rq.Replace = replace
	if rq.MaxWaiting = ln.most(); replace == nil {
		ln.follow(rq)
	} else {
		rq.MaxWaiting = 0
	}
	ln.asking = rq
	ln.manager.calls.Add(1)
	return rq
}

// driverRequest returns what the driver is asked for, with a fresh owner and the first waiter's
// terms.
func (ln *line) driverRequest() driver.Request {
	t := ln.first.terms
	return driver.Request{
		ID: driver.ID{Key: ln.lock.key, Owner: ln.shard.newOwner()}, Mode: t.Mode, Limit: t.Limit, TTL: t.TTL,
		Wait: ln.wantsToWait(), Trace: ln.first.trace,
	}
}

// ask starts a request.
func (ln *line) ask(replace *driver.Ending) { ln.run(ln.newRequest(replace)) }

// run runs rq in the background.
func (ln *line) run(rq *request) {
	mgr := ln.manager
	if rq.Wait {
		rq.ctx, rq.end = context.WithCancel(mgr.ctx)
	} else {
		rq.ctx, rq.end = context.WithTimeout(mgr.ctx, mgr.StoreTimeout)
	}
	if rq.unwanted {
		rq.end()
	}
	go func() {
		defer mgr.calls.Done()
		ln.carryOut(rq)
	}()
}

// cancel ends a request that nobody wants any more.
func (rq *request) cancel() {
	rq.unwanted = true
	if rq.ctx != nil {
		rq.end()
	}
}

// begin asks the store on the goroutine of w, the first waiter. If that does not answer the
// request, another goroutine goes on with it: see run.
func (ln *line) begin(rq *request, w *waiter) {
	g, done, err := ln.manager.prompt.Begin(rq.Request, w.since)
	ln.begun(rq, w, g, done, err)
}

// begun handles the results of the driver's Begin.
func (ln *line) begun(rq *request, w *waiter, g driver.Grant, done bool, err error) {
	mgr, now := ln.manager, time.Now()
	if done {
		mgr.heard(mgr.ctx, err)
		err = mgr.usable(rq, g, err, now)
	}

	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	defer w.stay()
	if h := w.hold; h != nil && !h.over && h.lease.current() {
		h.begin(now) // another caller handed a lease on to w meanwhile, which w learns only here
		h.lease.schedule()
	}
	if !done {
		ln.run(rq)
		return
	}
	if pause := ln.answer(rq, g, err, w.since, now); pause > 0 {
		rq.ctx, rq.end = context.WithCancel(mgr.ctx)
		go func() {
			defer mgr.calls.Done()
			defer rq.end()
			ln.pause(rq.ctx, pause)
		}()
		return
	}
	requests.Put(rq)
	mgr.calls.Done()
}

// carryOut runs a request to its end and lets the line go on from there.
func (ln *line) carryOut(rq *request) {
	mgr := ln.manager
	defer rq.end()
	sent := time.Now()
	g, err := mgr.session.Acquire(rq.ctx, rq.Request)
	now := time.Now()
	err = ln.because(rq, err)
	mgr.heard(mgr.ctx, err)
	err = mgr.usable(rq, g, err, now)
	ln.shard.mu.Lock()
	pause := ln.answer(rq, g, err, sent, now)
	ln.shard.mu.Unlock()
	if pause > 0 {
		ln.pause(rq.ctx, pause)
	}
}

// because returns err, or what the latest try of the request has come to if err says only that its time
// is over.
func (ln *line) because(rq *request, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	return cmp.Or(rq.failed, err)
}

// pause leaves the store alone for a while before the line asks again.
func (ln *line) pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	ln.asking = nil
	ln.advance()
}

// usable returns err, or errStale for a grant that came after its own deadline. It gives such a
// lease to the releaser.
func (mgr *Manager) usable(rq *request, g driver.Grant, err error, now time.Time) error {
	if err == nil && driver.Remaining(g.Deadline, now) <= 0 {
		mgr.releaser.add(driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}, rq.TTL)
		return errStale
	}
	return err
}

// answer handles the store's answer to a request. A positive result is how long the line must
// pause before it asks again; until then the request counts as under way.
func (ln *line) answer(rq *request, g driver.Grant, err error, sent, now time.Time) time.Duration {
	if rq.queued() {
		ln.lastHeld = at(now)
	}
	if err == nil && (rq.lost || 0 < g.Token && g.Token <= rq.lostUpTo) {
		ln.manager.releaser.add(driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}, rq.TTL)
		err = driver.ErrPlaceLost
	}
	if err == nil {
		ln.trouble, ln.asking = nil, nil
		g.Contended = g.Contended || rq.contended
		ln.take(newLease(ln, g, rq.TTL, sent, now), now)
		ln.advance()
		return 0
	}
	return ln.refused(rq, err)
}

// refused handles an answer without a grant, and returns what answer returns.
func (ln *line) refused(rq *request, err error) time.Duration {
	var held *driver.HeldError
	var permanent *driver.PermanentError
	transient := false
	if !errors.As(err, &held) {
		ln.unfollow(rq)
	}
	switch {
	case ln.manager.life.isClosed(), errors.Is(err, driver.ErrClosed):
		ln.refuseIf(always, refuse(Closed))
	case held != nil && held.Full && rq.MaxWaiting > 0:
		ln.trouble = nil
		rq.holder = held.Holder
		ln.refuseFull(rq.MaxWaiting, held.RetryAfter)
	case held != nil:
		ln.trouble = nil
		rq.holder = held.Holder
		ln.refuseTries(held.RetryAfter)
		transient = rq.Wait // it was asked to wait: do not spin on a store that will not
	case errors.Is(err, driver.ErrPlaceLost):
		transient = ln.failed(nil) > 1
	case errors.As(err, &permanent):
		ln.refuseIf(always, unavailable(err))
	case rq.unwanted:
		// Withdrawn: the last caller left. Others may have come since.
	default:
		ln.failed(err)
		ln.refuseIf((*waiter).try, unavailable(err))
		transient = true
	}
	if transient && ln.first != nil {
		rq.queuedAt = 0
		var failures int
		if ln.trouble != nil {
			failures = ln.trouble.failures
		}
		return backoff(failures)
	}
	ln.asking = nil
	ln.advance()
	return 0
}

// fault returns what is wrong with the store, as far as that is known, or nil.
func (ln *line) fault() error {
	if ln.trouble == nil {
		return nil
	}
	return ln.trouble.fault
}

// failed counts a failed attempt and returns how many have failed in a row. why is nil if the
// reason is not known.
func (ln *line) failed(why error) (failures int) {
	if ln.trouble == nil {
		ln.trouble = new(trouble)
	}
	ln.trouble.failures++
	if why != nil {
		ln.trouble.fault = why
	}
	return ln.trouble.failures
}

// A release that is sent (Terms.Sent) returns before the store has answered, and nobody waits for
// the end of a lease that lingers. A later request of this process for the key must not overtake
// it. If the driver has Capabilities.After, the next request of the line may follow it: the request
// names the lease as its After, and the driver ends that lease first if the request arrives before
// the release. In all other cases, and if that request fails, the line waits for the answer. But a
// strict caller who would wait takes its place in the store's queue at once: it is served in that
// order, and loses nothing by the overtaking.

// noteSent notes that a lease's release is sent.
func (ln *line) noteSent(l *lease, keep time.Duration) {
	l.sent = true
	ln.lock.sent++
	if ln.manager.Capabilities.After && keep == 0 {
		l.next, ln.sent = ln.sent, l
	}
}

// follow makes a request follow a release that is under way, if there is one.
func (ln *line) follow(rq *request) {
	l := ln.sent
	if l == nil {
		return
	}
	ln.sent, l.followed = l.next, true
	ln.followed++
	end := l.ending(0)
	rq.After, rq.follows = &end, l
}

// unfollow lets the line wait for the release that a request follows, since nobody knows whether
// the request has reached the store. Nor may another one follow it, since the first one may have.
func (ln *line) unfollow(rq *request) {
	if l := rq.follows; l != nil && l.followed {
		l.followed = false
		ln.followed--
	}
}

// noteAnswered notes that the store has answered to a lease's release.
func (ln *line) noteAnswered(l *lease) {
	if !l.sent {
		return
	}
	if l.followed {
		l.followed = false
		ln.followed--
	} else {
		for link := &ln.sent; *link != nil; link = &(*link).next {
			if *link == l {
				*link = l.next
				break
			}
		}
	}
	if ln.lock.sent--; ln.lock.sent > 0 {
		return
	}
	for other := ln.lock.lines; other != nil; {
		next := other.next
		if other != ln {
			other.advance()
		}
		other = next
	}
}

// unconfirmed is how many releases the next request of the line need not wait for.
func (ln *line) unconfirmed() int32 {
	n := ln.followed
	if ln.sent != nil {
		n++ // the next request follows it
	}
	return n
}

// behind reports whether a line, in which somebody waits, must wait for the answers to releases:
// those of other lines, and those of its own that no request may follow.
func (lk *lock) behind(ln *line) bool {
	if lk.sent == 0 || ln.strict && !ln.first.try() {
		return false
	}
	own := ln.followed
	for l := ln.sent; l != nil; l = l.next {
		own++
	}
	return lk.sent > own
}
