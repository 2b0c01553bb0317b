package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// lifetime is how far an engine is on its way from open to closed, and how many
// calls wait or hold.
type lifetime struct {
	calls atomic.Int64
	stage atomic.Int32 // a stage; changed under mu

	mu     sync.Mutex
	idle   chan struct{} // closed when draining and no call is left
	closed chan struct{} // closed when Close has finished
}

type stage = int32

const (
	open stage = iota
	draining
	closed
)

// enter counts a call in, unless the engine takes no more.
func (l *lifetime) enter() bool {
	l.calls.Add(1) // before the look: whoever sets the stage looks at calls after that
	if l.stage.Load() != open {
		l.leave()
		return false
	}
	return true
}

// leave counts a call out, when it gave up or its hold was released.
func (l *lifetime) leave() {
	if l.calls.Add(-1) > 0 || l.stage.Load() == open {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil && l.calls.Load() == 0 {
		close(l.idle)
		l.idle = nil
	}
}

func (l *lifetime) isClosed() bool { return l.stage.Load() == closed }

// Shutdown refuses new acquisitions with ErrClosed, lets the callers that wait
// or hold finish, and returns when none is left or ctx ends, then with ctx's
// error. It does not close the engine: call Close after it.
func (e *Engine) Shutdown(ctx context.Context) error {
	if err := e.misused(ctx, "shutdown"); err != nil {
		return err
	}
	l := &e.life
	l.mu.Lock()
	l.stage.CompareAndSwap(open, draining)
	if l.idle == nil {
		l.idle = make(chan struct{})
	}
	idle := l.idle
	if l.calls.Load() == 0 || l.isClosed() {
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return e.overdue(ctx, "shutdown", "").because("calls still wait or hold")
	}
}

// Close refuses new acquisitions, fails the waiting ones with ErrClosed, cancels
// every hold with ErrClosed and releases it at the store, and stops every
// goroutine of the engine. It returns within about two store timeouts, whatever
// the store does; leases that could not be released in that time end with their
// TTL. A second Close waits for the first.
//
// Calls that are still running lose their lock here: use Shutdown first to let
// them finish.
func (e *Engine) Close() error {
	if err := e.misused(context.Background(), "close"); err != nil {
		return err
	}
	l := &e.life
	l.mu.Lock()
	if l.isClosed() {
		done := l.closed
		l.mu.Unlock()
		<-done
		return nil
	}
	l.closed = make(chan struct{})
	l.stage.Store(closed)
	l.mu.Unlock()
	defer close(l.closed)

	var ends []driver.Ending
	for i := range e.shards {
		ends = append(ends, e.evict(&e.shards[i])...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.timeout)
	if len(ends) > 0 {
		e.session.Release(ctx, ends)
	}
	e.settle(ctx)
	cancel()
	e.cancel()
	ctx, cancel = context.WithTimeout(context.Background(), e.timeout)
	defer cancel()
	err := e.session.Close(ctx)
	e.calls.Wait()
	e.workers.Wait()
	if err != nil {
		return e.unavailable("close", "", err)
	}
	return nil
}

// settle waits until the calls to the store that were under way have ended: one of
// them may just have been granted a lease, which it gives back.
func (e *Engine) settle(ctx context.Context) {
	done := make(chan struct{})
	e.workers.Go(func() {
		e.calls.Wait()
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// evict fails the waiters of a shard and ends its holds. It returns the leases
// that are to be released at the store.
func (e *Engine) evict(s *shard) []driver.Ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ends []driver.Ending
	for _, lk := range s.locks {
		for ln := lk.lines; ln != nil; ln = ln.next {
			ends = append(ends, ln.evict()...)
		}
	}
	return ends
}

func (ln *line) evict() []driver.Ending {
	e := ln.engine
	for w := ln.first; w != nil; w = ln.first {
		ln.fail(w, e.failure("acquire", w.plan.Name, ErrClosed))
	}
	if ln.asking != nil {
		ln.asking.cancel()
	}
	var ends []driver.Ending
	for tn := ln.tenures; tn != nil; tn = tn.next {
		var keep time.Duration
		for h := tn.hold; h != nil; h = h.next {
			keep = max(keep, h.plan.MinHold)
			h.finish(shut)
		}
		ends = append(ends, tn.ending(keep))
		ln.forget(tn, time.Now())
	}
	ln.advance()
	return ends
}
