package core

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// What becomes of a lease that nobody holds for the moment while callers of this
// process want it.

const (
	// As soon as another process waits, this one hands the key on to its own
	// callers this often and for this long at most.
	turnHolds = 128
	turnTime  = 5 * time.Millisecond

	// hearsay is how long the store's word that nobody else waits is taken
	// for true: a message that somebody does can be lost.
	hearsay = time.Second
)

// start lets the first waiter hold if enough of the lease is left for it, and
// renews the lease before that otherwise.
func (ln *line) start(tn *tenure, now time.Time) {
	if driver.Remaining(tn.Deadline, now) < ln.first.plan.floor() {
		ln.refresh(tn)
		return
	}
	ln.serve(tn, now)
}

// floor is the least that must remain of a lease for a hold to start on it.
func (p *plan) floor() time.Duration {
	if p.NoRenew {
		return p.TTL - p.TTL/10 - driver.Margin(p.TTL)
	}
	return p.least()
}

// least is what must remain right after a renewal, which cannot bring more.
func (p *plan) least() time.Duration { return min(3*time.Second, p.TTL) / 4 }

// handOn decides what becomes of a lease whose holder has just released it and
// who was followed by others in the line.
func (ln *line) handOn(tn *tenure, from *plan, now time.Time) {
	if from.MinHold > 0 {
		ln.giveBack(tn, from.MinHold)
		return
	}
	ln.pass(tn, from, now)
}

// pass lets the first waiter have a lease that nobody holds any more, since from.
func (ln *line) pass(tn *tenure, from *plan, now time.Time) {
	switch {
	case tn.lowered, ln.mode == Shared, tn.usedUp(ln.first.plan, now), driver.Remaining(tn.Deadline, now) <= 0:
		ln.replace(tn)
	case !tn.contended && at(now).since(tn.news) > hearsay:
		ln.refresh(tn)
	default:
		from.signals.handoff.Add(ln.engine.ctx, 1, from.signals.base...)
		ln.start(tn, now)
	}
}

// usedUp reports whether the next hold needs a grant of its own: its MinHold counts
// from that, the block of tokens is at its end, or others have waited enough.
func (tn *tenure) usedUp(next *plan, now time.Time) bool {
	return tn.handoffs >= 0 && (next.MinHold > 0 || tn.handoffs+1 >= block || tn.turnIsOver(now))
}

// turnIsOver reports whether the process has had its turn while others wait.
func (tn *tenure) turnIsOver(now time.Time) bool {
	return tn.contended && (tn.handoffs+1 >= turnHolds || at(now).since(tn.news) >= turnTime)
}

// replace ends a lease and asks for the next one in the same step, unless that has
// been asked for.
func (ln *line) replace(tn *tenure) {
	if ln.asking != nil {
		ln.giveBack(tn, 0)
		return
	}
	old := tn.ending(0)
	ln.forget(tn, time.Now())
	ln.ask(&old)
}

// refresh renews a lease before it is handed on, or before others join those who
// hold it.
func (ln *line) refresh(tn *tenure) {
	tn.refreshing = true
	ttl := ln.first.plan.TTL
	renewal := tn.renewal(ttl)
	ln.engine.calls.Go(func() {
		ctx, cancel := context.WithTimeout(ln.engine.ctx, ln.engine.timeout)
		defer cancel()
		sent := time.Now()
		r := ln.engine.session.Renew(ctx, []driver.Renewal{renewal})[0]
		ln.engine.heard(ln.engine.ctx, r.Err)
		ln.shard.mu.Lock()
		defer ln.shard.mu.Unlock()
		tn.refreshing = false
		if tn.current() {
			ln.refreshed(tn, r, ttl, sent)
		}
	})
}

// refreshed goes on after a refresh.
func (ln *line) refreshed(tn *tenure, r driver.Renewed, ttl time.Duration, sent time.Time) {
	now := time.Now()
	if r.Err == nil {
		tn.extend(r, ttl, sent)
	}
	left := driver.Remaining(tn.Deadline, now)
	switch {
	case errors.Is(r.Err, driver.ErrNotHeld), left <= 0:
		ln.lose(tn)
		return
	case ln.first == nil && tn.hold == nil:
		ln.giveBack(tn, 0)
		return
	case ln.first == nil:
		tn.schedule()
		return
	case r.Err == nil && left >= ln.first.plan.least() && (tn.hold != nil && tn.joinable(ln.first.plan) || tn.hold == nil && !tn.usedUp(ln.first.plan, now)):
		ln.serve(tn, now)
	case tn.hold == nil:
		ln.replace(tn)
	default:
		// Those who wait ask for a share of their own.
		tn.closed = tn.closed || r.Err != nil || left < ln.first.plan.least()
		tn.schedule()
	}
	ln.advance()
}
