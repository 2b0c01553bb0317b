// Package kit has what drivers share: the life of a session (Life), releases in the background
// (Debts), waits that end with a context (Sleep, Run), what was seen of keys lately (Recent), and
// errors.
package kit

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
