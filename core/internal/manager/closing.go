package manager

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
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
		ends = append(ends, mgr.shards[i].close()...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), mgr.StoreTimeout)
	if len(ends) > 0 {
		mgr.session.Release(ctx, ends)
	}
	mgr.awaitCalls(ctx)
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

// awaitCalls waits until the calls to the store that were under way have ended: one of
// them may just have been granted a lease, which it returns.
func (mgr *Manager) awaitCalls(ctx context.Context) {
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

// close refuses the waiters of a shard and ends its holds. It returns the leases
// that are to be released at the store.
func (s *shard) close() []driver.Ending {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ends []driver.Ending
	for _, lk := range s.locks {
		for ln := lk.lines; ln != nil; ln = ln.next {
			ends = append(ends, ln.close()...)
		}
	}
	return ends
}

// close refuses the waiters of a line and ends its holds. It returns the leases
// that are to be released at the store.
func (ln *line) close() []driver.Ending {
	ln.refuseIf(always, refuse(Closed))
	if ln.asking != nil {
		ln.asking.cancel()
	}
	var ends []driver.Ending
	for l := ln.leases; l != nil; l = l.next {
		var keep time.Duration
		for h := l.hold; h != nil; h = h.next {
			keep = max(keep, h.terms.MinHold)
			h.end(Closed)
		}
		ends = append(ends, l.ending(keep))
		ln.unlink(l, time.Now())
	}
	ln.advance()
	return ends
}

// lifetime is how far a manager is on its way from open to closed, and how many
// calls wait or hold.
type lifetime struct {
	calls atomic.Int64
	stage atomic.Int32 // a stage; changed under mu

	mu      sync.Mutex
	refuses chan struct{} // closed when no more callers are taken; nil until somebody asks
	idle    chan struct{} // closed when draining and no call is left
	closed  chan struct{} // closed when Close has finished
}

type stage = int32

const (
	open stage = iota
	draining
	closed
)

// enter counts a call in, unless the manager takes no more. again says that it is part of a call that
// was counted in itself, and still is: that is taken until the manager is closed.
func (l *lifetime) enter(again bool) bool {
	l.calls.Add(1) // before the look: whoever sets the stage looks at calls after that
	if s := l.stage.Load(); s == open || again && s == draining {
		return true
	}
	l.leave()
	return false
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

// closing returns a channel that is closed once no more callers are taken.
func (l *lifetime) closing() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses == nil {
		l.refuses = make(chan struct{})
		if !l.isOpen() {
			close(l.refuses)
		}
	}
	return l.refuses
}

// advance goes on to a later stage. l.mu is held.
func (l *lifetime) advance(to stage) {
	if l.isOpen() && l.refuses != nil {
		close(l.refuses)
	}
	l.stage.Store(to)
}

func (l *lifetime) isOpen() bool { return l.stage.Load() == open }

func (l *lifetime) isClosed() bool { return l.stage.Load() == closed }

func (r *releaser) init(mgr *Manager) {
	r.manager, r.kick = mgr, make(chan struct{}, 1)
}

// add takes over the release of a lease. ttl is the longest that the lease was granted or renewed
// for: no request that was sent so far lets it last longer than ttl from its arrival.
func (r *releaser) add(end driver.Ending, ttl time.Duration) {
	r.mu.Lock()
	r.pending = append(r.pending, pendingRelease{end, time.Now().Add(ttl + r.manager.StoreTimeout)})
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// take returns the releases that were added since the last call.
func (r *releaser) take() []pendingRelease {
	r.mu.Lock()
	defer r.mu.Unlock()
	pending := r.pending
	r.pending = nil
	return pending
}

// run releases what was added, and repeats what had no answer.
func (r *releaser) run() {
	var pending []pendingRelease
	failures := 0
	for {
		var again <-chan time.Time
		if len(pending) > 0 {
			failures++
			again = time.After(backoff(failures))
		} else {
			failures = 0
		}
		select {
		case <-r.kick:
		case <-again:
		case <-r.manager.ctx.Done():
			return
		}
		pending = r.release(append(pending, r.take()...))
	}
}

// release asks the store to end leases. It returns those to ask for again: the store has not
// answered, and they may still be there.
func (r *releaser) release(pending []pendingRelease) []pendingRelease {
	if len(pending) == 0 {
		return nil
	}
	ends := make([]driver.Ending, len(pending))
	for i := range pending {
		ends[i] = pending[i].Ending
	}
	ctx, cancel := context.WithTimeout(r.manager.ctx, r.manager.StoreTimeout)
	defer cancel()
	errs := r.manager.session.Release(ctx, ends)
	r.manager.heard(r.manager.ctx, errs[0])
	now := time.Now()
	left := pending[:0]
	for i, t := range pending {
		if errs[i] != nil && !errors.Is(errs[i], driver.ErrNotHeld) && now.Before(t.until) {
			left = append(left, t)
		}
	}
	return left
}

// backoff is how long to leave a store alone after n failures in a row: from
// about 20 ms to about a second, jittered, so that processes spread out. The
// jitter comes from the clock's nanoseconds, so that a run under a simulated
// clock can be repeated.
func backoff(n int) time.Duration {
	d := min(20*time.Millisecond<<min(max(n-1, 0), 6), time.Second)
	jitter := mrand.NewPCG(uint64(time.Now().UnixNano()), uint64(n)).Uint64()
	return d/2 + time.Duration(jitter%uint64(d))
}
