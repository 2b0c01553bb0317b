package manager

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// try reports whether the waiter leaves as soon as the key is known to be taken.
func (w *waiter) try() bool { return w.tries || w.terms.Wait == 0 }

func (w *waiter) decided() bool { return w.hold != nil || w.refusal != nil }

// decide ends the waiting.
func (w *waiter) decide(h *Hold, r *Refusal) {
	w.hold, w.refusal = h, r
	if w.ready != nil {
		w.ready <- struct{}{}
	}
}

// stay prepares for waiting, unless the waiter is prepared or has been decided.
func (w *waiter) stay() {
	if w.ready == nil && !w.decided() {
		w.ready = make(chan struct{}, 1)
	}
}

// taken reports whether the key is known to be taken: by this process, or by another one, as
// the store has said.
func (ln *line) taken() bool {
	return ln.full() || ln.asking != nil && ln.asking.queued()
}

// full reports whether the process has as many leases as the line's mode allows.
func (ln *line) full() bool {
	switch ln.mode {
	case driver.Shared:
		return false
	case driver.Semaphore:
		return ln.held >= ln.limit
	default:
		return ln.held > 0
	}
}

// vacant reports whether the process has the key's lease but no hold on it, as while the lease
// is refreshed for the first waiter.
func (ln *line) vacant() bool {
	return ln.mode == driver.Exclusive && ln.leases != nil && ln.leases.hold == nil
}

// lingering returns the line's lease that lingers, or nil.
func (ln *line) lingering() *lease {
	if l := ln.leases; l != nil && l.hold == nil && l.lingers > 0 {
		return l
	}
	return nil
}

func (ln *line) push(w *waiter) {
	w.line, w.prev = ln, ln.last
	if ln.last != nil {
		ln.last.next = w
	} else {
		ln.first = w
	}
	ln.last = w
	ln.lock.waiting++
}

func (ln *line) remove(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		ln.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		ln.last = w.prev
	}
	w.prev, w.next = nil, nil
	ln.lock.waiting--
}

// fail removes a waiter and refuses it.
func (ln *line) fail(w *waiter, why *Refusal) {
	ln.remove(w)
	w.decide(nil, why)
}

// failIf refuses the waiters that match.
func (ln *line) failIf(match func(*waiter) bool, why *Refusal) {
	for w := ln.first; w != nil; {
		next := w.next
		if match(w) {
			ln.fail(w, why)
		}
		w = next
	}
}

func always(*waiter) bool { return true }

// failTries refuses the callers who would not wait, since the key is taken.
func (ln *line) failTries(retryAfter time.Duration) {
	if ln.has((*waiter).try) {
		why := ln.refuse(Busy)
		why.RetryAfter = retryAfter
		ln.failIf((*waiter).try, why)
	}
}

// joint returns the share of this process that readers may join, or nil.
func (ln *line) joint() *lease {
	for l := ln.leases; l != nil; l = l.next {
		if !l.closed && !l.contended && l.handoffs+1 < block {
			return l
		}
	}
	return nil
}

// wantsToWait reports whether any caller would wait for a key that is taken.
func (ln *line) wantsToWait() bool { return ln.has(func(w *waiter) bool { return !w.try() }) }

// has reports whether any caller matches.
func (ln *line) has(match func(*waiter) bool) bool {
	for w := ln.first; w != nil; w = w.next {
		if match(w) {
			return true
		}
	}
	return false
}
