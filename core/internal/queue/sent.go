package queue

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// A release that is sent returns before the store has answered. A later request of
// this process for the key must not overtake it. Where the driver can, the next request of the
// line has the lease ended before it, should it arrive first; in all other cases the line
// waits for the answer.

// depart notes that a lease's release is sent.
func (ln *line) depart(l *lease, keep time.Duration) {
	l.sent = true
	ln.lock.sent++
	if ln.queue.Capabilities.After && keep == 0 {
		l.next, ln.sent = ln.sent, l
	}
}

// follow returns a lease whose release is on its way, for the next request to end it before.
func (ln *line) follow() *driver.Ending {
	l := ln.sent
	if l == nil {
		return nil
	}
	ln.sent, l.followed = l.next, true
	ln.followed++
	end := l.ending(0)
	return &end
}

// confirm notes that the store has answered to a lease's release.
func (ln *line) confirm(l *lease) {
	if !l.sent {
		return
	}
	if l.followed {
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
		n++ // which it follows
	}
	return n
}

// behind reports whether a line must wait for the answers to releases of other lines.
func (lk *lock) behind(ln *line) bool {
	if lk.sent == 0 {
		return false
	}
	own := ln.followed
	for l := ln.sent; l != nil; l = l.next {
		own++
	}
	return lk.sent > own
}
