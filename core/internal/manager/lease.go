package manager

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// newLease makes a lease of a grant.
func newLease(ln *line, g driver.Grant, ttl time.Duration, sent, now time.Time) *lease {
	l := &lease{line: ln, ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline, handoffs: -1, length: ttl}
	l.heard(g.Contended, at(sent), now)
	return l
}

// heard notes whether another process waits, as the store has said. sent is when the request
// was sent that it answers; 0 if it said so in a push.
func (l *lease) heard(waiting bool, sent instant, now time.Time) {
	switch {
	case !waiting && l.contended && 0 < sent && sent <= l.heardAt:
		// The answer may be older than what was pushed meanwhile.
	case !waiting:
		l.contended, l.heardAt = false, sent
	case !l.contended || l.expecting():
		l.contended, l.heardAt = true, at(now)
		l.tellContended()
	}
}

// expecting reports whether the answer to a renewal is on its way. It may be older than a push.
func (l *lease) expecting() bool { return l.renewing || l.refreshing || l.asks > 0 }

// current reports whether the process still has this lease.
func (l *lease) current() bool { return !l.unlinked }

// ending returns the driver's order to end the lease.
func (l *lease) ending(keep time.Duration) driver.Ending {
	return driver.Ending{ID: l.ID, Ref: l.Ref, Token: l.Token, Deadline: l.Deadline, Keep: keep}
}

// renewal returns the driver's order to renew the lease, which is about to be sent. If the lease
// was lowered, each renewal asks for a share again: the first one may not have arrived at the store.
func (l *lease) renewal(ttl time.Duration) driver.Renewal {
	l.length = max(l.length, ttl) // also if the answer is lost
	return driver.Renewal{ID: l.ID, Ref: l.Ref, Token: l.Token, TTL: ttl, Share: l.lowered}
}

// ttl returns the TTL to renew for: the longest of the holds that are renewed. A hold that is
// not may count too if it is first in the list, which only makes the lease longer.
func (l *lease) ttl() time.Duration {
	var ttl time.Duration
	for h := l.hold; h != nil; h = h.next {
		if !h.over && (!h.terms.NoRenew || ttl == 0) {
			ttl = max(ttl, h.terms.TTL)
		}
	}
	return ttl
}

// wanted reports whether others wait for what the lease keeps from them, in this or in another process.
func (l *lease) wanted() bool { return l.contended || l.line.lock.waiting > 0 }

// endLinger ends the lingering of a lease, because it is wanted again or returned.
func (l *lease) endLinger() {
	if l.lingers > 0 {
		l.lingers = 0
		l.line.manager.held.Add(-1)
	}
}

// renewable reports whether the lease has a hold that is to be renewed.
func (l *lease) renewable() bool {
	for h := l.hold; h != nil; h = h.next {
		if !h.over && !h.terms.NoRenew {
			return true
		}
	}
	return false
}

// soon is when a lease is renewed on which a hold begins with less than a renewal leaves. A hold
// that is shorter costs no renewal.
const soon = 50 * time.Millisecond

// planHold sees to it that the lease is renewed in time for a hold that begins: when two thirds of
// the hold's TTL are left, and soon if that is past. So it may be if the store's grant was for less
// than the TTL, if the lease is another hold's of a shorter TTL, or if nobody has renewed it for a
// while. A sooner plan stays: many short holds do not put it off.
func (l *lease) planHold(ttl time.Duration, now time.Time) {
	left := driver.Remaining(l.Deadline, now)
	after, leeway := min(left+driver.Margin(ttl)-ttl/3*2, ttl/3), 8
	if least := min(soon, left/2, ttl/3); after < least {
		after, leeway = least, 2
	}
	if due := at(now).add(after); l.renewAt == 0 || due < l.renewAt {
		l.renewAt, l.leeway = due, inMillis(after/time.Duration(leeway))
	}
}

// planRenewal sets when a lease that was renewed is next renewed: after a third of its TTL, or half
// of what is left if that is sooner.
func (l *lease) planRenewal(ttl time.Duration, now time.Time) {
	after := min(ttl/3, driver.Remaining(l.Deadline, now)/2)
	l.renewAt, l.leeway = at(now).add(after), inMillis(after/8)
}

// schedule tells the renewer when the lease next needs attention.
func (l *lease) schedule() {
	due, early := at(l.Deadline), millis(0)
	if l.lingers > 0 {
		due = min(due, l.lingers)
	}
	for h := l.hold; h != nil; h = h.next {
		if h.over {
			continue
		}
		due = min(due, at(h.deadline()))
		if end, ok := h.maxAt(); ok {
			due = min(due, end)
		}
	}
	if l.renewable() && !l.renewing && l.renewAt < due {
		due, early = l.renewAt, l.leeway
	}
	l.line.manager.renewer.put(l, due, early)
}

// goOn schedules a lease after an answer of the store. One that lingers is returned if the answer
// says that another process wants it.
func (l *lease) goOn(now time.Time) {
	if l.returnUnwanted(now); l.current() {
		l.schedule()
	}
}

// extend notes a renewal that succeeded.
func (l *lease) extend(r driver.Renewed, ttl time.Duration, sent time.Time) {
	l.Deadline = driver.Later(l.Deadline, r.Deadline)
	now := time.Now()
	l.heard(r.Contended, at(sent), now)
	if wanted := l.ttl(); wanted > ttl {
		l.planHold(wanted, now)
	} else {
		l.planRenewal(ttl, now)
	}
	l.noteRenewed()
}
