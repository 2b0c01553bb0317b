package queue

import (
	"context"
	"sync"
	"time"
)

// waiter is a caller in the line. Once decided, either hold or refusal is set.
type waiter struct {
	line       *line
	prev, next *waiter
	terms      *Terms
	since      time.Time
	ready      chan struct{} // holds one element once decided; nil if that was before anybody had to wait
	hold       *Hold
	refusal    *Refusal
}

// waiters are for those who never had to wait: nobody else knows of them any more.
var waiters = sync.Pool{New: func() any { return new(waiter) }}

// try reports whether the waiter leaves as soon as the key is known to be taken.
func (w *waiter) try() bool { return w.terms.Wait == 0 }

func (w *waiter) decided() bool { return w.hold != nil || w.refusal != nil }

// decide ends the waiting.
func (w *waiter) decide(h *Hold, r *Refusal) {
	w.hold, w.refusal = h, r
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

// await blocks until the waiter is decided, at most that long after it came.
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
