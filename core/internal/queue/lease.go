package queue

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

// heard takes in whether another process waits, as the store said in answer to
// something that was sent at that time.
func (l *lease) heard(waiting bool, sent instant, now time.Time) {
	switch {
	case !waiting && l.contended && 0 < sent && sent <= l.heardAt:
		// The answer may be older than what was pushed meanwhile.
	case !waiting:
		l.contended, l.heardAt = false, sent
	case !l.contended || l.renewing:
		l.contended, l.heardAt = true, at(now)
		l.tellContended()
	}
}

// current reports whether the process still has this lease.
func (l *lease) current() bool { return !l.gone }

// ending asks for the lease to end.
func (l *lease) ending(keep time.Duration) driver.Ending {
	return driver.Ending{ID: l.ID, Ref: l.Ref, Token: l.Token, Deadline: l.Deadline, Keep: keep}
}

// renewal asks for the lease to last. What was lowered is asked to be a share each time:
// the answer to the first time may have been lost, and the question too.
func (l *lease) renewal(ttl time.Duration) driver.Renewal {
	return driver.Renewal{ID: l.ID, Ref: l.Ref, Token: l.Token, TTL: ttl, Share: l.lowered}
}

// ttl is the longest TTL of those who hold and want the lease to go on.
func (l *lease) ttl() time.Duration {
	var ttl time.Duration
	for h := l.hold; h != nil; h = h.next {
		if !h.over && (!h.terms.NoRenew || ttl == 0) {
			ttl = max(ttl, h.terms.TTL)
		}
	}
	return ttl
}

// settle ends the lingering of a lease, because it is wanted again or given back.
func (l *lease) settle() {
	if l.lingers > 0 {
		l.lingers = 0
		l.line.queue.held.Add(-1)
	}
}

// renewable reports whether somebody holds who wants the lease to go on.
func (l *lease) renewable() bool {
	for h := l.hold; h != nil; h = h.next {
		if !h.over && !h.terms.NoRenew {
			return true
		}
	}
	return false
}

// planRenewal sets when the lease is next renewed: after a third of its TTL, or
// half of what is left if that is sooner.
func (l *lease) planRenewal(ttl time.Duration, now time.Time) {
	after := min(ttl/3, driver.Remaining(l.Deadline, now)/2)
	l.renewAt, l.leeway = at(now).add(after), after/8
}

// schedule tells the renewer when the lease next needs attention.
func (l *lease) schedule() {
	due, early := at(l.Deadline), time.Duration(0)
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
	l.line.queue.renewer.put(l, due, early)
}

// extend takes in a renewal.
func (l *lease) extend(r driver.Renewed, ttl time.Duration, sent time.Time) {
	l.Deadline = driver.Later(l.Deadline, r.Deadline)
	l.length = max(l.length, ttl)
	now := time.Now()
	l.heard(r.Contended, at(sent), now)
	l.planRenewal(ttl, now)
}
