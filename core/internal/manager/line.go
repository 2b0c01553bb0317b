package manager

import (
	"hash/maphash"
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
	ln.lock.count(w, 1)
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
	ln.lock.count(w, -1)
}

// refuse removes a waiter and refuses it.
func (ln *line) refuse(w *waiter, why *Refusal) {
	ln.remove(w)
	w.decide(nil, why)
}

// refuseIf refuses the waiters that match.
func (ln *line) refuseIf(match func(*waiter) bool, why *Refusal) {
	for w := ln.first; w != nil; {
		next := w.next
		if match(w) {
			ln.refuse(w, why)
		}
		w = next
	}
}

func always(*waiter) bool { return true }

// refuseTries refuses the callers who would not wait, since the key is taken.
func (ln *line) refuseTries(retryAfter time.Duration) {
	if ln.has((*waiter).try) {
		why := ln.refusal(Busy)
		why.RetryAfter = retryAfter
		ln.refuseIf((*waiter).try, why)
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

// spares is how many unused locks a shard keeps.
const spares = 16

func (mgr *Manager) shardOf(key string) *shard {
	return &mgr.shards[maphash.String(mgr.seed, key)%uint64(len(mgr.shards))]
}

func (t *Terms) kind() kind { return kind{int32(t.Limit), t.Mode, t.Strict} }

// lockOf returns the lock of a key, which it adds if there is none. s.mu is held.
func (s *shard) lockOf(key string) *lock {
	lk := s.locks[key]
	if lk == nil {
		if n := len(s.spare); n > 0 {
			lk, s.spare = s.spare[n-1], s.spare[:n-1]
		} else {
			lk = new(lock)
		}
		lk.key, lk.unsure = key, false
		s.locks[key] = lk
	}
	return lk
}

// conflict returns why a caller of kind k cannot use the key beside its present callers, or ""
// if it can.
func (lk *lock) conflict(k kind) string {
	for ln := lk.lines; ln != nil; ln = ln.next {
		switch {
		case ln.lingering() != nil: // nobody uses it
		case ln.strict != k.strict:
			return "other callers use the key with another Fairness at this time; use the same everywhere"
		case ln.mode == driver.Semaphore && k.mode == driver.Semaphore && ln.limit != k.limit:
			return "other callers use the key with another Limit at this time; use the same everywhere"
		}
	}
	return ""
}

// lineOf returns the line for callers of a kind, which it adds if there is none.
func (mgr *Manager) lineOf(s *shard, lk *lock, k kind) *line {
	for ln := lk.lines; ln != nil && !k.strict; ln = ln.next {
		if ln.kind == k {
			return ln
		}
	}
	ln := &lk.single
	if lk.lines != nil {
		ln = new(line)
	}
	if ln.shard == nil { // a line never changes its shard
		ln.manager, ln.shard = mgr, s
	}
	ln.lock = lk
	ln.lineState = lineState{}
	ln.kind, ln.next, lk.lines = k, lk.lines, ln
	return ln
}

// free takes a line that has nothing to do out of its lock, for another use of its memory.
func (ln *line) free() {
	if ln.lock == nil {
		return
	}
	lk, s := ln.lock, ln.shard
	at := &lk.lines
	for *at != ln {
		at = &(*at).next
	}
	*at = ln.next
	ln.lock = nil
	if lk.lines != nil {
		return
	}
	delete(s.locks, lk.key)
	if len(s.spare) < spares {
		lk.key = ""
		s.spare = append(s.spare, lk)
	}
}
