package manager

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

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
