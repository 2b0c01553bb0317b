package manager

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Terms.MaxWaiting bounds two queues, each by itself: the callers of this process, here, and the places
// in the store's queue, there. Callers count here as far as they are known to wait. While the store is
// asked nobody knows whether the key is taken: it may have slots for all of them, or they may share it. So some
// may be let in for whom there is no room, and are refused when that is known.
//
// A caller for whom there is room is not refused any more (letIn). If its line has to ask the store once more,
// as after its turn, or because its place was lost, that request has no bound.

// count counts a caller in or out.
func (lk *lock) count(w *waiter, n int32) {
	lk.waiting += n
	if !w.try() {
		lk.patient += n
		w.line.patient += n
	}
}

// known returns how many callers are known to wait, or to find the store's queue full. Nobody passes them, so
// that all callers of the key wait if those of one line do.
func (lk *lock) known() int32 {
	var writers, permits, limit int32
	for ln := lk.lines; ln != nil; ln = ln.next {
		switch {
		case ln.taken():
			return lk.patient
		case ln.mode == driver.Exclusive:
			writers += ln.patient
		case ln.mode == driver.Semaphore:
			permits, limit = permits+ln.patient+ln.held, ln.limit
		}
	}
	return max(writers-1, 0) + max(permits-limit, 0)
}

// tooMany reports whether there is no room for w, which has just joined its line.
func (lk *lock) tooMany(w *waiter) bool {
	switch most := w.terms.MaxWaiting; {
	case most == 0 || w.try():
		return false
	case int(lk.known()) > most:
		return true
	case w.line.taken():
		w.letIn = true
	default:
		lk.unsure = true
	}
	return false
}

// bound refuses callers for whom there turns out to be no room, now that the line's key is known to be taken.
// Of strict callers the store decides, if it can.
func (ln *line) bound() {
	lk := ln.lock
	if !lk.unsure {
		return
	}
	lk.unsure = false
	if !ln.strict || !ln.manager.Capabilities.Bounds {
		var all []*waiter
		for other := lk.lines; other != nil; other = other.next {
			for w := other.first; w != nil; w = w.next {
				if !w.try() {
					all = append(all, w)
				}
			}
		}
		slices.SortStableFunc(all, func(a, b *waiter) int { return a.since.Compare(b.since) })
		for i, w := range all {
			if most := w.terms.MaxWaiting; most > 0 && i >= most && !w.letIn {
				w.line.refuse(w, w.line.crowded(most))
				w.line.left()
			}
		}
	}
	for other := lk.lines; other != nil; other = other.next {
		if !other.taken() {
			lk.unsure = lk.unsure || other.first != nil
			continue
		}
		for w := other.first; w != nil; w = w.next {
			w.letIn = true
		}
	}
}

// most is how many places the store's queue may have for the line's next request; 0 is any number.
func (ln *line) most() int {
	if !ln.manager.Capabilities.Bounds || ln.first.letIn {
		return 0
	}
	return ln.first.terms.MaxWaiting
}

// refuseFull refuses the callers that the store has no room for, since most have a place there. The others
// ask again.
func (ln *line) refuseFull(most int, retryAfter time.Duration) {
	ln.refuseTries(retryAfter)
	why := ln.crowded(most)
	why.RetryAfter = retryAfter
	ln.refuseIf(func(w *waiter) bool { return !w.letIn && 0 < w.terms.MaxWaiting && w.terms.MaxWaiting <= most }, why)
}

// crowded returns the refusal of a caller before whom as many wait as may.
func (ln *line) crowded(most int) *Refusal {
	why := ln.refusal(Full)
	why.Detail = fmt.Sprintf("%d wait for the key already, which is the policy's MaxWaiting", most)
	return why
}
