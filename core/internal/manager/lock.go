package manager

import (
	"hash/maphash"

	"github.com/lockaround/lockaround/core/driver"
)

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
		lk.key = key
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

// drop forgets a line that has nothing to do.
func (ln *line) drop() {
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
