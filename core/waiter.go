package core

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// waiter is a caller in the line. Once decided, either hold or err is set.
type waiter struct {
	line       *line
	prev, next *waiter
	plan       *plan
	since      time.Time
	ready      chan struct{} // holds one element once decided; nil if that was before anybody had to wait
	hold       *hold
	err        error
}

// waiters are for those who never had to wait: nobody else knows of them any more.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

// try reports whether the waiter leaves as soon as the key is known to be taken.
func (w *waiter) try() bool { return w.plan.Wait == 0 }

func (w *waiter) decided() bool { return w.hold != nil || w.err != nil }

// decide ends the waiting.
func (w *waiter) decide(h *hold, err error) {
	w.hold, w.err = h, err
	if w.ready != nil {
		w.ready <- struct{}{}
	}
}

// stay prepares for waiting, unless the waiter has been decided.
func (w *waiter) stay() {
	if !w.decided() {
		w.ready = make(chan struct{}, 1)
	}
}

// wait queues the caller for key since start, for that long at most, and returns its
// hold.
func (e *Engine) wait(ctx context.Context, pl *plan, key string, patience time.Duration, start time.Time) (*hold, error) {
	if ctx.Err() != nil {
		return nil, e.overdue(ctx, "acquire", pl.Name)
	}
	if !e.life.enter() {
		return nil, e.failure("acquire", pl.Name, ErrClosed)
	}
	w := waiters.Get().(*waiter)
	*w = waiter{plan: pl, since: start}
	rq, err := e.join(w, key, e.prompt != nil && patience >= driver.Promptness && leaves(ctx, driver.Promptness))
	if err != nil {
		e.life.leave()
		return nil, err
	}
	if rq != nil {
		w.line.begin(rq, w)
	}
	if w.ready != nil {
		w.await(ctx, patience)
	}
	h, err := w.hold, w.err
	if w.ready == nil {
		waiters.Put(w)
	}
	switch {
	case h == nil:
		e.life.leave()
		if ctx.Err() != nil {
			return nil, e.overdue(ctx, "acquire", pl.Name)
		}
		if patience >= e.timeout && errors.Is(err, errSilent) {
			e.heard(ctx, errSilent)
		}
		return nil, err
	case ctx.Err() != nil:
		h.abandon(func() {})
		return nil, e.overdue(ctx, "acquire", pl.Name)
	}
	return h, nil
}

// leaves reports whether a context leaves that much time from now on.
func leaves(ctx context.Context, d time.Duration) bool {
	end, ends := ctx.Deadline()
	return !ends || time.Until(end) >= d
}

// await blocks until the waiter is decided, at most that long after it came.
func (w *waiter) await(ctx context.Context, patience time.Duration) {
	var late <-chan time.Time
	if patience != Forever {
		t := time.NewTimer(patience - time.Since(w.since))
		defer t.Stop()
		late = t.C
	}
	w.plan.signals.Waiting(ctx, 1)
	defer w.plan.signals.Waiting(ctx, -1)
	select {
	case <-w.ready:
	case <-late:
		w.line.leave(w, false)
	case <-ctx.Done():
		w.line.leave(w, true)
	}
}
