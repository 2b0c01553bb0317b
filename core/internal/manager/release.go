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
	next, r := h.part(now)
	if next == stillUsed {
		return r
	}
	defer h.lease.line.manager.life.leave()
	if next == endsLease {
		if h.terms.Sent {
			depart(h.send(ctx, now, r))
			return r
		}
		if said := h.giveBack(ctx, now, nil); r == nil {
			r = said
		}
	}
	h.released(ctx, now, r)
	return r
}

// parting is what is left to do for who gave up a handle.
type parting uint8

const (
	stillUsed parting = iota // nothing: others use the hold
	parted                   // nothing: the lease stays, has ended, or is somebody else's to end
	endsLease                // the lease ends at the store, and calls.Done is due after that
)

// part gives up one handle, and with the last handle the hold. It hands the lease on, keeps it or
// forgets it. It returns why the hold had ended before. After all but stillUsed the caller counts
// the hold out with life.leave.
func (h *Hold) part(now time.Time) (parting, *Refusal) {
	h.lock()
	defer h.unlock()
	if h.uses--; h.uses > 0 {
		return stillUsed, refuse(h.ended)
	}
	l, ln := h.lease, h.lease.line
	if l.current() && !h.over && !h.live(now) {
		l.expire(h, now)
	}
	if !h.over {
		h.close()
	}
	h.leave()
	r := refuse(h.ended)
	if !l.current() || l.refreshing {
		return parted, r
	}
	if s := ln.situation(l, h.terms, now); ln.first != nil || s.decide() != stepGiveBack {
		ln.move(l, s, now)
		return parted, r
	}
	ln.forget(l, now)
	ln.ending++
	ln.manager.calls.Add(1) // Close waits for this call, since it no longer finds the lease
	if h.terms.Sent {
		ln.depart(l, h.terms.MinHold)
	}
	return endsLease, r
}

// leave removes the hold from its lease.
func (h *Hold) leave() {
	at := &h.lease.hold
	for *at != h {
		at = &(*at).next
	}
	*at = h.next
}

// departure is how long a release that is sent waits at most until the driver has written it. That takes some
// dozens of microseconds, unless the store is silent, or there is a queue for its connections.
const departure = 10 * time.Millisecond

// depart waits until releases that are sent are on their way, for departure at most.
func depart(all ...<-chan struct{}) {
	late := time.NewTimer(departure)
	defer late.Stop()
	for _, written := range all {
		select {
		case <-written:
		case <-late.C:
			return
		}
	}
}

// send releases a hold's lease at the store without making its caller wait for the answer. The channel is closed
// when the release is on its way, or answered; at once if the driver does not tell.
func (h *Hold) send(ctx context.Context, now time.Time, ended *Refusal) <-chan struct{} {
	ctx, mgr, left := context.WithoutCancel(ctx), h.lease.line.manager, make(chan struct{})
	written := sync.OnceFunc(func() { close(left) })
	if !mgr.Capabilities.Written {
		written()
	}
	mgr.workers.Go(func() { // Close waits for the call of part, and so for this
		r := h.giveBack(ctx, now, written)
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

// giveBack releases the lease of the hold at the store. written is for the driver, and may be nil.
func (h *Hold) giveBack(ctx context.Context, now time.Time, written func()) *Refusal {
	ctx, sp := h.terms.Signals.Release(ctx, h.span)
	err := h.lease.line.finish(ctx, h.lease, h.terms.MinHold, now, written)
	return h.gaveBack(ctx, sp, err)
}

// gaveBack returns the refusal that the end of the hold's lease at the store came to.
func (h *Hold) gaveBack(ctx context.Context, sp signals.Span, err error) (r *Refusal) {
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
