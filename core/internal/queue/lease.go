package queue

import (
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// lease is what this process has been granted by the store. Callers hold it one
// after the other, or together if it is a share. It is guarded by the mutex of its
// line's shard, but for the renewer's own entry.
type lease struct {
	line *line
	next *lease // of the line
	driver.ID
	Ref      string
	Token    int64
	Deadline time.Time
	hold     *Hold         // who hold, linked; nil while the process decides on the next one
	single   Hold          // room for the first of them
	length   time.Duration // the longest TTL that it was granted or renewed for

	// If contended: when the first word of that came, or one during a renewal. Otherwise: before the latest
	// word of the store that nobody else waits was asked for.
	heardAt instant

	renewAt instant
	leeway  time.Duration // how much sooner than renewAt it may travel with others
	entry   entry

	lingers instant // until when it is kept although nobody holds; zero if it is not

	handoffs   int16 // holds on this grant, less one
	gone       bool  // the line has parted from it
	contended  bool  // another process is known to wait
	closed     bool  // nobody joins those who hold
	lowered    bool  // from an exclusive lease to a share
	renewing   bool
	refreshing bool // it is being renewed before it is handed on
	sent       bool // its release was, before its caller knows the answer
	followed   bool // a request was sent after that
}

// block is how many holds share one grant of the store, each with its own fencing token.
const block = 1024

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

// attend does what is due for a lease, and reports whether it is to be renewed.
func (l *lease) attend(now time.Time) (renew bool) {
	if !l.current() {
		return false
	}
	if driver.Remaining(l.Deadline, now) <= 0 {
		l.line.lose(l)
		return false
	}
	if l.recall(now); !l.current() {
		return false
	}
	for h := l.hold; h != nil; h = h.next {
		if !h.over && driver.Remaining(h.deadline(), now) <= 0 {
			if l.expire(h, now); !l.current() {
				return false
			}
		}
		if h.pastMax(now) && h.finish(MaxHold) {
			l.line.queue.warn("lockaround: a call held its lock for longer than MaxHold", h.terms)
		}
	}
	renew = l.renewable() && !l.renewing && l.renewAt.add(-l.leeway) <= at(now)
	if renew {
		l.renewing = true
	}
	l.schedule()
	return renew
}

// expire ends a hold whose time is over, and the lease with it unless others share
// that.
func (l *lease) expire(h *Hold, now time.Time) {
	if driver.Remaining(l.Deadline, now) > 0 && (l.hold != h || h.next != nil) {
		h.lose()
		return
	}
	l.line.lose(l)
}

// renewed goes on after a renewal.
func (l *lease) renewed(r driver.Renewed, ttl time.Duration, sent time.Time) {
	l.renewing = false
	if !l.current() {
		return
	}
	now := time.Now()
	switch {
	case r.Err == nil:
		l.extend(r, ttl, sent)
	case errors.Is(r.Err, driver.ErrNotHeld):
		l.line.lose(l)
		return
	default:
		// Again soon, and until the deadline.
		l.renewAt, l.leeway = at(now).add(max(driver.Remaining(l.Deadline, now)/8, ttl/50)), 0
	}
	l.schedule()
}

// extend takes in a renewal.
func (l *lease) extend(r driver.Renewed, ttl time.Duration, sent time.Time) {
	l.Deadline = driver.Later(l.Deadline, r.Deadline)
	l.length = max(l.length, ttl)
	now := time.Now()
	l.heard(r.Contended, at(sent), now)
	l.planRenewal(ttl, now)
}
