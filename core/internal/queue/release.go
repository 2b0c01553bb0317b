package queue

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

// Release gives up one handle, and with the last handle the hold. It returns why the hold
// had ended before, or Unavailable if the store could not be told: the release then goes on
// in the background. If Terms.Sent is set it does not wait for the store.
func (h *Hold) Release(ctx context.Context) *Refusal {
	h.lock()
	if h.uses--; h.uses > 0 {
		r := refuse(h.ended)
		h.unlock()
		return r
	}
	l, ln, now := h.lease, h.lease.line, time.Now()
	q := ln.queue
	defer q.life.leave()
	if l.current() && !h.over && !h.live(now) {
		l.expire(h, now)
	}
	if !h.over {
		h.close()
	}
	h.leave()
	r := refuse(h.ended)
	switch {
	case !l.current(), l.refreshing:
		h.unlock()
	default:
		if s := ln.situation(l, h.terms, now); ln.first != nil || s.decide() != stepGiveBack {
			ln.move(l, s, now)
			h.unlock()
			break
		}
		ln.forget(l, now)
		ln.ending++
		q.calls.Add(1) // Close waits for this call, since it no longer finds the lease
		if h.terms.Sent {
			ln.depart(l, h.terms.MinHold)
			h.unlock()
			h.send(ctx, now, r)
			return r
		}
		h.unlock()
		if said := h.giveBack(ctx, now); r == nil {
			r = said
		}
	}
	h.released(ctx, now, r)
	return r
}

// leave removes the hold from its lease.
func (h *Hold) leave() {
	at := &h.lease.hold
	for *at != h {
		at = &(*at).next
	}
	*at = h.next
}

// send releases a hold's lease at the store without making its caller wait.
func (h *Hold) send(ctx context.Context, now time.Time, ended *Refusal) {
	ctx = context.WithoutCancel(ctx)
	go func() {
		r := h.giveBack(ctx, now)
		if r != nil {
			q := h.lease.line.queue
			q.Logger().Warn("lockaround: the store did not confirm a release that was sent",
				"lock.name", h.terms.Name, "lock.driver", q.Capabilities.Name, "lock.outcome", r.Outcome(signals.Released).String())
		}
		if ended == nil {
			ended = r
		}
		h.released(ctx, now, ended)
	}()
}

// giveBack releases the lease of the hold at the store.
func (h *Hold) giveBack(ctx context.Context, now time.Time) (r *Refusal) {
	ctx, sp := h.terms.Signals.Release(ctx, h.span)
	err := h.lease.line.finish(ctx, h.lease, h.terms.MinHold, now)
	h.lease.line.queue.calls.Done()
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
}

// Abandon releases a hold in the background, for a caller who does not want it any more. It
// calls then after the release.
func (h *Hold) Abandon(then func()) {
	release := func() { _ = h.Release(context.Background()); then() }
	h.lock()
	current := h.lease.current()
	if current {
		h.lease.line.queue.calls.Go(release)
	}
	h.unlock()
	if !current {
		release()
	}
}
