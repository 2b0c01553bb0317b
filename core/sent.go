package core

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// A release with ReleaseMode Sent returns before the store has answered. A later request of
// this process for the key must not overtake it. Where the driver can, the next request of the
// line has the lease ended before it, should it arrive first; in all other cases the line
// waits for the answer.

// send releases a hold's lease at the store without making its caller wait.
func (h *hold) send(ctx context.Context, now time.Time, fault error) {
	ctx = context.WithoutCancel(ctx)
	go func() {
		err := h.giveBack(ctx, now)
		if err != nil {
			h.engine().log().Warn("lockaround: the store did not confirm a release that was sent",
				"lock.name", h.plan.Name, "lock.driver", h.engine().caps.Name, "error", err.Error())
		}
		if fault == nil {
			fault = err
		}
		h.countRelease(ctx, at(now), fault)
	}()
}

// depart notes that a lease's release is sent.
func (ln *line) depart(tn *tenure, keep time.Duration) {
	tn.sent = true
	ln.lock.sent++
	if ln.engine.caps.After && keep == 0 {
		tn.next, ln.sent = ln.sent, tn
	}
}

// follow returns a lease whose release is on its way, for the next request to end it before.
func (ln *line) follow() *driver.Ending {
	tn := ln.sent
	if tn == nil {
		return nil
	}
	ln.sent, tn.followed = tn.next, true
	ln.followed++
	end := tn.ending(0)
	return &end
}

// confirm notes that the store has answered to a lease's release.
func (ln *line) confirm(tn *tenure) {
	if !tn.sent {
		return
	}
	if tn.followed {
		ln.followed--
	} else {
		for link := &ln.sent; *link != nil; link = &(*link).next {
			if *link == tn {
				*link = tn.next
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
	for tn := ln.sent; tn != nil; tn = tn.next {
		own++
	}
	return lk.sent > own
}
