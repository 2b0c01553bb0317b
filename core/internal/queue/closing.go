package queue

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lockaround/lockaround/core/driver"
)

// lifetime is how far a queue is on its way from open to closed, and how many
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

// enter counts a call in, unless the queue takes no more.
func (l *lifetime) enter() bool {
	l.calls.Add(1) // before the look: whoever sets the stage looks at calls after that
	if !l.isOpen() {
		l.leave()
		return false
	}
	return true
}

// leave counts a call out, when it gave up or its hold was released.
func (l *lifetime) leave() {
	if l.calls.Add(-1) > 0 || l.isOpen() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil && l.calls.Load() == 0 {
		close(l.idle)
		l.idle = nil
	}
}

func (l *lifetime) isOpen() bool { return l.stage.Load() == open }

func (l *lifetime) isClosed() bool { return l.stage.Load() == closed }

// Shutdown refuses new callers, lets those who wait or hold finish, and returns when none is
// left or ctx ends. Close comes after it.
func (q *Queue) Shutdown(ctx context.Context) *Refusal {
	l := &q.life
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
		r := overdue(ctx)
		r.Detail = "calls still wait or hold"
		return r
	}
}

// Close refuses callers, ends all holds and releases them at the store, and stops every
// goroutine of the queue, within about two of the store's times. A second Close waits for
// the first.
func (q *Queue) Close() *Refusal {
	l := &q.life
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
	for i := range q.shards {
		ends = append(ends, q.shards[i].evict()...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), q.StoreTimeout)
	if len(ends) > 0 {
		q.session.Release(ctx, ends)
	}
	q.settle(ctx)
	cancel()
	q.cancel()
	ctx, cancel = context.WithTimeout(context.Background(), q.StoreTimeout)
	defer cancel()
	err := q.session.Close(ctx)
	q.calls.Wait()
	q.workers.Wait()
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// settle waits until the calls to the store that were under way have ended: one of
// them may just have been granted a lease, which it gives back.
func (q *Queue) settle(ctx context.Context) {
	done := make(chan struct{})
	q.workers.Go(func() {
		q.calls.Wait()
		close(done)
	})
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// evict fails the waiters of a shard and ends its holds. It returns the leases
// that are to be released at the store.
func (s *shard) evict() []driver.Ending {
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
