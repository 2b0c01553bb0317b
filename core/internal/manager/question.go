package manager

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Question is what the store is asked about a lease that is held.
type Question struct {
	TTL   time.Duration // how long it is to last; 0 is as its terms say
	Lower bool          // an exclusive one is to be a share
}

// Ask asks the store whether the hold is still the owner, and with it what about says.
func (h *Hold) Ask(ctx context.Context, about Question) *Refusal {
	h.lock()
	l, ln := h.lease, h.lease.line
	mgr := ln.manager
	if now := time.Now(); l.current() && !h.over && !h.live(now) {
		l.expire(h, now)
	}
	if h.over { // its lease may be another caller's by now
		defer h.unlock()
		if h.ended == 0 {
			return refuse(Released)
		}
		return refuse(h.ended)
	}
	ttl, extends := h.terms.TTL, !h.terms.NoRenew || about.TTL > 0
	switch {
	case about.TTL > 0:
		ttl = about.TTL
	case h.terms.NoRenew:
		ttl = mgr.Capabilities.MinTTL // a renewal never shortens, so that this one only asks
	}
	l.lowered = l.lowered || about.Lower && h.terms.Mode == driver.Exclusive // from now on, whatever the store answers
	renewal := l.renewal(ttl)
	l.asks++
	h.unlock()

	sctx, cancel := context.WithTimeout(ctx, mgr.StoreTimeout)
	defer cancel()
	sent := time.Now()
	res := mgr.session.Renew(sctx, []driver.Renewal{renewal})[0]
	mgr.heard(ctx, res.Err)

	h.lock()
	defer h.unlock()
	l.asks--
	if l.current() {
		if res.Err == nil && extends {
			if h.terms.NoRenew {
				h.extras.end = driver.Later(h.extras.end, res.Deadline)
			}
			l.extend(res, ttl, sent)
			l.goOn(time.Now())
		}
		switch now := time.Now(); {
		case errors.Is(res.Err, driver.ErrNotHeld):
			ln.lose(l)
		case !h.over && !h.live(now):
			l.expire(h, now)
		}
	}
	switch {
	case h.ended != 0:
		return refuse(h.ended)
	case res.Err == nil:
		return nil
	case ctx.Err() != nil:
		return overdue(ctx)
	default:
		return unavailable(res.Err)
	}
}
