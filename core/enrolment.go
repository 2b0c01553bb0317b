package core

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// enrolment is the store being asked for a lease, on behalf of whoever is first
// in the line when it is granted. It is guarded by the mutex of its line's shard.
type enrolment struct {
	driver.Request
	ctx       context.Context // nil while a caller begins it
	end       context.CancelFunc
	queued    bool // the store has said that the key is taken
	withdrawn bool // nobody wants it any more

	contended bool // a push about the grant has overtaken it: others wait
}

// enrolments are for those that ended where they began: nobody else knows of them.
var enrolments = sync.Pool{New: func() any { return new(enrolment) }}

// enrolment makes a fresh one for the first waiter, to be begun or run. replace, if not
// nil, is the lease of this process that ends with it.
func (ln *line) enrolment(replace *driver.Ending) *enrolment {
	en := enrolments.Get().(*enrolment)
	*en = enrolment{Request: ln.request()}
	en.Replace = replace
	if replace == nil {
		en.After = ln.follow()
	}
	ln.asking = en
	ln.engine.calls.Add(1)
	return en
}

// ask starts an enrolment.
func (ln *line) ask(replace *driver.Ending) { ln.run(ln.enrolment(replace)) }

// run has an enrolment run in the background.
func (ln *line) run(en *enrolment) {
	e := ln.engine
	if en.Wait {
		en.ctx, en.end = context.WithCancel(e.ctx)
	} else {
		en.ctx, en.end = context.WithTimeout(e.ctx, e.timeout)
	}
	if en.withdrawn {
		en.end()
	}
	go func() {
		defer e.calls.Done()
		ln.enrol(en)
	}()
}

// cancel ends an enrolment that nobody wants any more.
func (en *enrolment) cancel() {
	en.withdrawn = true
	if en.ctx != nil {
		en.end()
	}
}

// begin asks the store on the goroutine of w, the caller who is first, and leaves the
// rest to another one if that does not settle it.
func (ln *line) begin(en *enrolment, w *waiter) {
	e := ln.engine
	g, done, err := e.prompt.Begin(en.Request, w.since)
	now := time.Now()
	if done {
		e.heard(e.ctx, err)
		err = e.usable(en, g, err, now)
	}

	ln.shard.mu.Lock()
	defer ln.shard.mu.Unlock()
	defer w.stay()
	if h := w.hold; h != nil && !h.over && h.tenure.current() {
		h.begin(now) // somebody has handed a lease on meanwhile: its caller hears of it here
		h.tenure.schedule()
	}
	if !done {
		ln.run(en)
		return
	}
	if pause := ln.answer(en, g, err, w.since, now); pause > 0 {
		en.ctx, en.end = context.WithCancel(e.ctx)
		go func() {
			defer e.calls.Done()
			defer en.end()
			ln.pause(en.ctx, pause)
		}()
		return
	}
	enrolments.Put(en)
	e.calls.Done()
}

// enrol runs an enrolment to its end and lets the line go on from there.
func (ln *line) enrol(en *enrolment) {
	e := ln.engine
	defer en.end()
	sent := time.Now()
	g, err := e.session.Acquire(en.ctx, en.Request)
	now := time.Now()
	e.heard(e.ctx, err)
	err = e.usable(en, g, err, now)
	ln.shard.mu.Lock()
	pause := ln.answer(en, g, err, sent, now)
	ln.shard.mu.Unlock()
	if pause > 0 {
		ln.pause(en.ctx, pause)
	}
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

// usable returns err, or what is wrong with a grant.
func (e *Engine) usable(en *enrolment, g driver.Grant, err error, now time.Time) error {
	if err == nil && driver.Remaining(g.Deadline, now) <= 0 {
		e.ender.add(driver.Ending{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}, en.TTL)
		return errStale
	}
	return err
}

// errStale is the cause when a grant arrives after its own deadline.
var errStale = errors.New("the store answered after the lease's TTL")

// answer takes in what the store said. A positive result is how long the
// enrolment must pause before the line may ask again.
func (ln *line) answer(en *enrolment, g driver.Grant, err error, sent, now time.Time) time.Duration {
	if en.queued {
		ln.lastHeld = at(now)
	}
	if err == nil {
		ln.trouble, ln.asking = nil, nil
		g.Contended = g.Contended || en.contended
		ln.take(newTenure(ln, g, en.TTL, sent, now), now)
		ln.advance()
		return 0
	}
	return ln.refused(en, err)
}

// refused takes in why there was no grant. Its result is that of answer.
func (ln *line) refused(en *enrolment, err error) time.Duration {
	e := ln.engine
	var held *driver.HeldError
	var permanent *driver.PermanentError
	transient := false
	switch {
	case e.life.isClosed(), errors.Is(err, driver.ErrClosed):
		ln.failIf(always, func(w *waiter) error { return e.failure("acquire", w.plan.Name, ErrClosed) })
	case errors.As(err, &held):
		ln.trouble = nil
		ln.failTries(held.RetryAfter)
		transient = en.Wait // it was asked to wait: do not spin on a store that will not
	case errors.Is(err, driver.ErrPlaceLost):
		transient = ln.failed(nil) > 1
	case errors.As(err, &permanent):
		ln.failIf(always, func(w *waiter) error { return e.unavailable("acquire", w.plan.Name, err) })
	case en.withdrawn:
		// Withdrawn: the last caller left. Others may have come since.
	default:
		ln.failed(err)
		ln.failIf((*waiter).try, func(w *waiter) error { return e.unavailable("acquire", w.plan.Name, err) })
		transient = true
	}
	if transient && ln.first != nil {
		en.queued = false
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

// trouble is what a line has with the store since that last answered.
type trouble struct {
	failures int   // attempts in a row
	fault    error // of the latest that says what is wrong
}

// fault is why the store could not be asked, as far as it is known.
func (ln *line) fault() error {
	if ln.trouble == nil {
		return nil
	}
	return ln.trouble.fault
}

// failed counts an attempt that failed, for that reason if it is known.
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
