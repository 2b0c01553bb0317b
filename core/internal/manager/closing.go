package manager

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Closing returns a channel that is closed once Shutdown or Close has been called.
func (mgr *Manager) Closing() <-chan struct{} { return mgr.life.closing() }

// Shutdown refuses new callers, lets those who wait or hold finish, and returns when none is
// left or ctx ends. Close comes after it.
func (mgr *Manager) Shutdown(ctx context.Context) *Refusal {
	l := &mgr.life
	l.mu.Lock()
	if l.isOpen() {
		l.advance(draining)
	}
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
// goroutine of the manager, within about two of the store's times. A second Close waits for
// the first.
func (mgr *Manager) Close() *Refusal {
	l := &mgr.life
	l.mu.Lock()
	if l.isClosed() {
		done := l.closed
		l.mu.Unlock()
		<-done
		return nil
	}
	l.closed = make(chan struct{})
	l.advance(closed)
	l.mu.Unlock()
	defer close(l.closed)

	var ends []driver.Ending
	for i := range mgr.shards {
		ends = append(ends, mgr.shards[i].evict()...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mgr.StoreTimeout)
	if len(ends) > 0 {
		mgr.session.Release(ctx, ends)
	}
	mgr.settle(ctx)
	cancel()
	mgr.cancel()
	ctx, cancel = context.WithTimeout(context.Background(), mgr.StoreTimeout)
	defer cancel()
	err := mgr.session.Close(ctx)
	mgr.calls.Wait()
	mgr.workers.Wait()
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// settle waits until the calls to the store that were under way have ended: one of
// them may just have been granted a lease, which it gives back.
func (mgr *Manager) settle(ctx context.Context) {
	done := make(chan struct{})
	mgr.workers.Go(func() {
		mgr.calls.Wait()
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

// evict fails the waiters of a line that is closed, and ends its holds. It returns the leases
// that are to be released at the store.
func (ln *line) evict() []driver.Ending {
	ln.failIf(always, refuse(Closed))
	if ln.asking != nil {
		ln.asking.cancel()
	}
	var ends []driver.Ending
	for l := ln.leases; l != nil; l = l.next {
		var keep time.Duration
		for h := l.hold; h != nil; h = h.next {
			keep = max(keep, h.terms.MinHold)
			h.finish(Closed)
		}
		ends = append(ends, l.ending(keep))
		ln.forget(l, time.Now())
	}
	ln.advance()
	return ends
}
