package kit

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Sleep waits for d. It reports false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Signal wakes one who receives from it. Signals that nobody has received yet count as one.
type Signal chan struct{}

// NewSignal returns one that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the receiver, or lets the next receive return at once. It does not block.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Worker is a goroutine of a session that does what is due.
type Worker struct {
	life  *Life
	work  func() time.Duration
	woken Signal
	start sync.Once
}

// NewWorker returns a worker whose goroutine starts with the first Wake. It calls work when
// it was woken, or when the time has passed that work returned: at once for 0, never for
// less. It ends with l.Ctx.
func NewWorker(l *Life, work func() (next time.Duration)) *Worker {
	return &Worker{life: l, work: work, woken: NewSignal()}
}

// Wake has work called soon. It does not block.
func (w *Worker) Wake() {
	w.start.Do(func() { w.life.Start(w.run) })
	w.woken.Set()
}

func (w *Worker) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for w.life.Ctx.Err() == nil {
		next := w.work()
		switch {
		case next == 0:
			continue
		case next < 0:
			timer.Stop()
		default:
			timer.Reset(next)
		}
		select {
		case <-w.woken:
		case <-timer.C:
		case <-w.life.Ctx.Done():
		}
	}
}

// Run calls f on a goroutine of the session, and returns what it returns. It does not wait
// longer than limit, nor beyond the end of ctx or of the session: f may run on then, with a
// context that has ended.
func Run[T any](ctx context.Context, l *Life, limit time.Duration, f func(context.Context) (T, error)) (out T, err error) {
	type result struct {
		out T
		err error
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &SilenceError{Store: l.store, After: limit})
	defer cancel()
	done := make(chan result, 1)
	if !l.Start(func() {
		var r result
		r.out, r.err = f(ctx)
		done <- r
	}) {
		return out, driver.ErrClosed
	}
	select {
	case r := <-done:
		if r.err != nil && ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		return r.out, r.err
	case <-ctx.Done():
		return out, context.Cause(ctx)
	case <-l.Closing:
		return out, driver.ErrClosed
	}
}
