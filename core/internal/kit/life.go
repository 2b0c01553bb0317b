// Package kit has what drivers share: the life of a session (Life), releases in the background
// (Debts), waits that end with a context (Sleep, Run), what was seen of keys lately (Recent),
// errors, and the names of scripts (ScriptName).
//
// # Files
//
//	life.go    Life, and waits: Sleep, Signal, Worker and Run
//	debts.go   Debts and Owed
//	recent.go  Recent, and Crowded, which keys others wanted lately
//	errors.go  SilenceError, and how tries end
//	script.go  ScriptName
package kit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Life is the life of a session: its calls, its goroutines, and its end.
type Life struct {
	Open    context.Context // ends when Close begins; its cause is then driver.ErrClosed
	Closing <-chan struct{} // closed when Open ends
	Ctx     context.Context // ends when Close has done its work, or has no more time for it

	store, confirms string
	shut            context.CancelCauseFunc // ends Open
	cancel          context.CancelFunc      // ends Ctx

	mu      sync.Mutex
	closed  bool           // no call begins any more
	over    bool           // no goroutine starts any more
	calls   sync.WaitGroup // of the session's methods
	workers sync.WaitGroup // goroutines
}

// NewLife begins a life. Errors name the store, and who confirms there that a lease has
// ended, such as "the server".
func NewLife(store, confirms string) *Life {
	l := &Life{store: store, confirms: confirms}
	l.Open, l.shut = context.WithCancelCause(context.Background())
	l.Closing = l.Open.Done()
	l.Ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Enter begins a call of one of the session's methods. If it returns nil, the call ends
// with Leave. After Close has begun it returns driver.ErrClosed.
func (l *Life) Enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return driver.ErrClosed
	}
	l.calls.Add(1)
	return nil
}

// Leave ends a call.
func (l *Life) Leave() { l.calls.Done() }

// Start runs f on a goroutine of the session. It reports false, and f does not run, if Close
// has come to wait for the goroutines. Then Ctx has ended.
func (l *Life) Start(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.workers.Go(f)
	return true
}

// Close ends the session. It waits for calls, then for drain, which reports whether the
// store has confirmed the end of everything that was given up. Then it ends Ctx, calls end
// unless that is nil, and waits for the goroutines. It returns by the end of ctx: what is
// under way then ends when the client library lets go of it.
func (l *Life) Close(ctx context.Context, drain func(context.Context) bool, end func()) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.shut(driver.ErrClosed)

	done := make(chan struct{})
	drained := false // once done
	go func() {
		defer close(done)
		l.calls.Wait()
		drained = drain(ctx)
		l.cancel()
		if end != nil {
			end()
		}
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
		l.workers.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		l.cancel()
	}
	select {
	case <-done:
		if drained {
			return nil
		}
		return errors.Join(fmt.Errorf("%s: session closed before %s had confirmed the end of all leases", l.store, l.confirms), ctx.Err())
	default:
		return errors.Join(fmt.Errorf("%s: session closed with work left", l.store), ctx.Err())
	}
}

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

// GrowStack grows the stack of a fresh goroutine, which has 2 KiB, at once to what a request takes.
// Otherwise it grows in steps, which copies ever more frames: a tenth of a client's time.
//
//go:noinline
func GrowStack() {
	var frame [8 << 10]byte
	runtime.KeepAlive(&frame)
}
