package core

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// enrolment is the store being asked for a lease, on behalf of whoever is first
// in the line when it is granted.
type enrolment struct {
	driver.Request
	ctx    context.Context
	cancel context.CancelFunc
	queued bool // the store has said that the key is taken

	contended bool // a push about the grant has overtaken it: others wait
}

// ask starts an enrolment. replace, if not nil, is the lease of this process
// that ends with it.
func (ln *line) ask(replace *driver.Ending) {
	en := &enrolment{Request: ln.request()}
	en.Replace = replace
	if en.Wait {
		en.ctx, en.cancel = context.WithCancel(ln.engine.ctx)
	} else {
		en.ctx, en.cancel = context.WithTimeout(ln.engine.ctx, ln.engine.timeout)
	}
	ln.asking = en
	ln.engine.calls.Go(func() { ln.enrol(en) })
}

// enrol runs an enrolment to its end and lets the line go on from there.
func (ln *line) enrol(en *enrolment) {
	e := ln.engine
	defer en.cancel()
	sent := time.Now()
	g, err := e.session.Acquire(en.ctx, en.Request)
	now := time.Now()
	if err == nil && driver.Remaining(g.Deadline, now) <= 0 {
		e.ender.add(driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}, en.TTL)
		err = errStale
	}

	ln.shard.mu.Lock()
	pause := ln.answer(en, g, err, sent, now)
	ln.shard.mu.Unlock()
	if pause == 0 {
		return
	}
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-en.ctx.Done():
	}
	ln.shard.mu.Lock()
	ln.asking = nil
	ln.advance()
	ln.shard.mu.Unlock()
}

// errStale is the cause when a grant arrives after its own deadline.
var errStale = errors.New("the store answered after the lease's TTL")

// answer takes in what the store said. A positive result is how long the
// enrolment must pause before the line may ask again.
func (ln *line) answer(en *enrolment, g driver.Grant, err error, sent, now time.Time) time.Duration {
	e := ln.engine
	if en.queued {
		ln.lastHeld = now
	}
	var held *driver.HeldError
	var permanent *driver.PermanentError
	transient := false
	switch {
	case err == nil:
		ln.failures, ln.fault, ln.asking = 0, nil, nil
		g.Contended = g.Contended || en.contended
		ln.take(newTenure(ln, g, en.TTL, sent), now)
		ln.advance()
		return 0
	case e.life.isClosed(), errors.Is(err, driver.ErrClosed):
		ln.failIf(always, func(w *waiter) error { return e.failure("acquire", w.plan.Name, ErrClosed) })
	case errors.As(err, &held):
		ln.failures, ln.fault = 0, nil
		ln.failTries(held.RetryAfter)
		transient = en.Wait // it was asked to wait: do not spin on a store that will not
	case errors.Is(err, driver.ErrPlaceLost):
		ln.failures++
		transient = ln.failures > 1
	case errors.As(err, &permanent):
		ln.failIf(always, func(w *waiter) error { return e.unavailable("acquire", w.plan.Name, err) })
	case errors.Is(en.ctx.Err(), context.Canceled):
		// Withdrawn: the last caller left. Others may have come since.
	default:
		ln.failures++
		ln.fault = err
		ln.failIf((*waiter).try, func(w *waiter) error { return e.unavailable("acquire", w.plan.Name, err) })
		transient = true
	}
	if transient && ln.first != nil {
		en.queued = false
		return backoff(int(ln.failures))
	}
	ln.asking = nil
	ln.advance()
	return 0
}

func always(*waiter) bool { return true }

// backoff is how long to leave a store alone after n failures in a row: from
// about 20 ms to about a second, jittered, so that processes spread out. The
// jitter comes from the clock's nanoseconds, so that under a simulated clock a
// run can be had again.
func backoff(n int) time.Duration {
	d := min(20*time.Millisecond<<min(max(n-1, 0), 6), time.Second)
	jitter := mrand.NewPCG(uint64(time.Now().UnixNano()), uint64(n)).Uint64()
	return d/2 + time.Duration(jitter%uint64(d))
}

// newOwner draws a fresh owner.
func newOwner() (o driver.Owner) {
	_, _ = rand.Read(o[:]) // never fails: crypto/rand ends the program instead
	return o
}
