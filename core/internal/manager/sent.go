package manager

import "time"

// A release that is sent (Terms.Sent) returns before the store has answered, and nobody waits for
// the end of a lease that lingers. A later request of this process for the key must not overtake
// it. If the driver has Capabilities.After, the next request of the line may follow it: the request
// names the lease as its After, and the driver ends that lease first if the request arrives before
// the release. In all other cases, and if that request fails, the line waits for the answer. But a
// strict caller who would wait takes its place in the store's queue at once: it is served in that
// order, and loses nothing by the overtaking.

// depart notes that a lease's release is sent.
func (ln *line) depart(l *lease, keep time.Duration) {
	l.sent = true
	ln.lock.sent++
	if ln.manager.Capabilities.After && keep == 0 {
		l.next, ln.sent = ln.sent, l
	}
}

// follow makes a request follow a release that is under way, if there is one.
func (ln *line) follow(rq *request) {
	l := ln.sent
	if l == nil {
		return
	}
	ln.sent, l.followed = l.next, true
	ln.followed++
	end := l.ending(0)
	rq.After, rq.follows = &end, l
}

// unfollow lets the line wait for the release that a request follows, since nobody knows whether
// the request has reached the store. Nor may another one follow it, since the first one may have.
func (ln *line) unfollow(rq *request) {
	if l := rq.follows; l != nil && l.followed {
		l.followed = false
		ln.followed--
	}
}

// confirm notes that the store has answered to a lease's release.
func (ln *line) confirm(l *lease) {
	if !l.sent {
		return
	}
	if l.followed {
		l.followed = false
		ln.followed--
	} else {
		for link := &ln.sent; *link != nil; link = &(*link).next {
			if *link == l {
				*link = l.next
				break
			}
		}
	}
	if ln.lock.sent--; ln.lock.sent > 0 {
		return
	}
	for other := ln.lock.lines; other != nil; {
		next := other.next
		if other != ln {
			other.advance()
		}
		other = next
	}
}

// unconfirmed is how many releases the next request of the line need not wait for.
func (ln *line) unconfirmed() int32 {
	n := ln.followed
	if ln.sent != nil {
		n++ // the next request follows it
	}
	return n
}

// behind reports whether a line, in which somebody waits, must wait for the answers to releases:
// those of other lines, and those of its own that no request may follow.
func (lk *lock) behind(ln *line) bool {
	if lk.sent == 0 || ln.strict && !ln.first.try() {
		return false
	}
	own := ln.followed
	for l := ln.sent; l != nil; l = l.next {
		own++
	}
	return lk.sent > own
}
