package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Release gives up one handle, and with the last handle the hold. It returns why the hold
// had ended before, or Unavailable if the store could not be told: the release then goes on
// in the background. If Terms.Sent is set it does not wait for the store.
func (h *Hold) Release(ctx context.Context) *Refusal {
	now := time.Now()
	next, r := h.letGo(now)
	if next == stillUsed {
		return r
	}
	defer h.lease.line.manager.life.leave()
	if next == returnsLease {
		if h.terms.Sent {
			awaitWritten(h.sendRelease(ctx, now, r))
			return r
		}
		if said := h.returnLease(ctx, now, nil); r == nil {
			r = said
		}
	}
	h.released(ctx, now, r)
	return r
}

// afterwards is what is left to do for who gave up a handle.
type afterwards uint8

const (
	stillUsed    afterwards = iota // nothing: others use the hold
	leaseStays                     // nothing: the lease stays, has ended, or is somebody else's to return
	returnsLease                   // the lease is to be returned, and calls.Done is due after that
)

// letGo gives up one handle, and with the last one ends the hold: it hands the lease on, keeps it or
// unlinks it. It returns why the hold had ended before. After all but stillUsed the caller counts
// the hold out with life.leave.
func (h *Hold) letGo(now time.Time) (afterwards, *Refusal) {
	h.lock()
	defer h.unlock()
	if h.uses--; h.uses > 0 {
		return stillUsed, refuse(h.ended)
	}
	l, ln := h.lease, h.lease.line
	if l.current() && !h.over && !h.live(now) {
		l.loseExpired(h, now)
	}
	if !h.over {
		h.markOver()
	}
	h.unlink()
	r := refuse(h.ended)
	if !l.current() || l.refreshing {
		return leaseStays, r
	}
	if s := ln.situation(l, h.terms, now); ln.first != nil || s.decide() != stepReturn {
		ln.move(l, s, now)
		return leaseStays, r
	}
	ln.unlink(l, now)
	ln.returning++
	ln.manager.calls.Add(1) // Close waits for this call, since it no longer finds the lease
	if h.terms.Sent {
		ln.noteSent(l, h.terms.MinHold)
	}
	return returnsLease, r
}

// unlink removes the hold from its lease.
func (h *Hold) unlink() {
	at := &h.lease.hold
	for *at != h {
		at = &(*at).next
	}
	*at = h.next
}

// writtenWithin is how long a release that is sent waits at most until the driver has written it. That takes some
// dozens of microseconds, unless the store is silent, or there is a queue for its connections.
const writtenWithin = 10 * time.Millisecond

// awaitWritten waits until releases that are sent are on their way, for writtenWithin at most.
func awaitWritten(all ...<-chan struct{}) {
	late := time.NewTimer(writtenWithin)
	defer late.Stop()
	for _, written := range all {
		select {
		case <-written:
		case <-late.C:
			return
		}
	}
}

// sendRelease releases a hold's lease at the store without making its caller wait for the answer. The channel is closed
// when the release is on its way, or answered; at once if the driver does not tell.
func (h *Hold) sendRelease(ctx context.Context, now time.Time, ended *Refusal) <-chan struct{} {
	ctx, mgr, left := context.WithoutCancel(ctx), h.lease.line.manager, make(chan struct{})
	written := sync.OnceFunc(func() { close(left) })
	if !mgr.Capabilities.Written {
		written()
	}
	mgr.workers.Go(func() { // Close waits for the call of part, and so for this
		r := h.returnLease(ctx, now, written)
		written()
		if r != nil {
			mgr.Logger().Warn("lockaround: the store did not confirm a release that was sent",
				"lock.name", h.terms.Name, "lock.driver", mgr.Capabilities.Name, "lock.outcome", r.Outcome(signals.Released).String())
		}
		if ended == nil {
			ended = r
		}
		h.released(ctx, now, ended)
	})
	return left
}

// returnLease returns the lease of the hold to the store. written is for the driver, and may be nil.
func (h *Hold) returnLease(ctx context.Context, now time.Time, written func()) *Refusal {
	ctx, sp := h.terms.Signals.Release(ctx, h.span)
	err := h.lease.line.returnNow(ctx, h.lease, h.terms.MinHold, now, written)
	return h.leaseReturned(ctx, sp, err)
}

// leaseReturned is the refusal that the return of the hold's lease came to.
func (h *Hold) leaseReturned(ctx context.Context, sp signals.Span, err error) (r *Refusal) {
	h.lease.line.manager.calls.Done()
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		h.terms.Signals.Lost(ctx)
		r = refuse(Lost)
	case err != nil:
		r = &Refusal{Why: Unavailable, Cause: err, Detail: "the release goes on in the background"}
	}
	sp.End(r.Outcome(signals.Released))
	return r
}

// released reports the release in metrics and spans: r is what the caller was told, or would
// have been.
func (h *Hold) released(ctx context.Context, now time.Time, r *Refusal) {
	h.terms.Signals.Released(ctx, h.span, at(now).since(h.since), r.Outcome(signals.Released))
	if o := h.lease.line.manager.observer.Load(); o != nil {
		h.noteReleased(*o, r)
	}
}

// ReleaseAll releases several holds of one call, as Release does, but asks the store once for
// all. It returns what Release would return for each.
func ReleaseAll(ctx context.Context, holds []*Hold) []*Refusal {
	now := time.Now()
	all := letGoAll(holds, now)
	var sent []<-chan struct{}
	for i := range all {
		if p := &all[i]; p.next == returnsLease && p.hold.terms.Sent {
			sent = append(sent, p.hold.sendRelease(ctx, now, p.why))
			p.hold.lease.line.manager.life.leave()
			p.next = stillUsed // by that goroutine
		}
	}
	all.complete(ctx, now, len(all), true)
	if len(sent) > 0 {
		awaitWritten(sent...)
	}
	out := make([]*Refusal, len(all))
	for i := range all {
		out[i] = all[i].why
	}
	return out
}

// ReleaseUnused releases the holds of a call that cannot have all that it needs, without MinHold. It waits
// for the store for patience at most, or until ctx ends: then the release goes on in the
// background.
func ReleaseUnused(ctx context.Context, holds []*Hold, patience time.Duration) {
	releaseUnused(ctx, holds, len(holds), patience)
}

// releaseUnused is ReleaseUnused for holds of which the first few were reported as granted.
func releaseUnused(ctx context.Context, holds []*Hold, granted int, patience time.Duration) {
	done := releaseBehind(holds, granted)
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-done:
	case <-late.C:
	case <-ctx.Done():
	}
}

// releaseBehind releases holds in the background, and closes the channel after that. The first few were
// reported as granted.
func releaseBehind(holds []*Hold, granted int) <-chan struct{} {
	now, done := time.Now(), make(chan struct{})
	all := letGoAll(holds, now)
	finish := func() {
		all.complete(context.Background(), now, granted, false)
		close(done)
	}
	for _, p := range all {
		if p.next == returnsLease {
			p.hold.lease.line.manager.calls.Go(finish) // its own call is not done yet, so Close waits
			return done
		}
	}
	finish()
	return done
}

// releases are holds that end together.
type releases []struct {
	hold *Hold
	next afterwards
	why  *Refusal // why it had ended before, or what the release came to
	span spanned  // of the release
}

// letGoAll gives up one handle of each hold: nobody else waits longer for one because of another.
func letGoAll(holds []*Hold, now time.Time) releases {
	all := make(releases, len(holds))
	for i, h := range holds {
		all[i].hold = h
		all[i].next, all[i].why = h.letGo(now)
	}
	return all
}

// complete returns the leases that are to be returned, and counts the holds out. The first few
// were reported as granted. MinHold counts only if the holds were used.
func (all releases) complete(ctx context.Context, now time.Time, granted int, used bool) {
	ends := make([]driver.Ending, 0, len(all))
	for i := range all {
		if p := &all[i]; p.next == returnsLease {
			p.span.ctx, p.span.Span = p.hold.terms.Signals.Release(ctx, p.hold.span)
			keep := time.Duration(0)
			if used {
				keep = p.hold.terms.MinHold
			}
			ends = append(ends, p.hold.lease.ending(keep))
		}
	}
	var errs []error
	if len(ends) > 0 {
		errs = all[0].hold.lease.line.manager.returnAll(ctx, ends, now)
	}
	for i, n := 0, 0; i < len(all); i++ {
		p := &all[i]
		if p.next == returnsLease {
			p.hold.lease.line.leaseReturned(p.hold.lease, ends[n], errs[n])
			if said := p.hold.leaseReturned(p.span.ctx, p.span.Span, errs[n]); p.why == nil {
				p.why = said
			}
			n++
		}
		if p.next == stillUsed {
			continue
		}
		if i < granted {
			p.hold.released(ctx, now, p.why)
		}
		p.hold.lease.line.manager.life.leave()
	}
}

// returnAll returns leases to the store in one call, within ctx and StoreTimeout.
func (mgr *Manager) returnAll(ctx context.Context, ends []driver.Ending, now time.Time) []error {
	if len(ends) == 1 {
		return []error{mgr.returnLease(ctx, ends[0], now)}
	}
	rctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
	defer cancel()
	errs := mgr.session.Release(rctx, ends)
	for _, err := range errs {
		mgr.heard(ctx, err)
	}
	return errs
}
