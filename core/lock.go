package core

// lock is a key that this process has to do with: the lines of its callers, one for
// each kind of use. It is guarded by the mutex of its shard.
type lock struct {
	key     string // with namespace
	lines   *line
	waiting int // callers in all lines
}

// kind is what the callers of a line have in common.
type kind struct {
	limit  int32 // of a Semaphore
	mode   Mode
	strict bool // each caller has a line of its own
}

func (p *plan) kind() kind { return kind{int32(p.Limit), p.Mode, p.Fairness == Strict} }

// lockOf returns the lock of a key, which it adds if there is none. s.mu is held.
func (s *shard) lockOf(key string) *lock {
	lk := s.locks[key]
	if lk == nil {
		lk = &lock{key: key}
		s.locks[key] = lk
	}
	return lk
}

// conflict says why a caller of that kind cannot use the key beside those who use
// it now; it is empty if it can.
func (lk *lock) conflict(k kind) string {
	for ln := lk.lines; ln != nil; ln = ln.next {
		switch {
		case ln.strict != k.strict:
			return "other callers use the key with another Fairness at this time; use the same everywhere"
		case ln.mode == Semaphore && k.mode == Semaphore && ln.limit != k.limit:
			return "other callers use the key with another Limit at this time; use the same everywhere"
		}
	}
	return ""
}

// lineOf returns the line for callers of a kind, which it adds if there is none.
func (e *Engine) lineOf(s *shard, lk *lock, k kind) *line {
	for ln := lk.lines; ln != nil && !k.strict; ln = ln.next {
		if ln.kind == k {
			return ln
		}
	}
	ln := &line{engine: e, shard: s, lock: lk, kind: k, next: lk.lines}
	lk.lines = ln
	return ln
}

// drop forgets a line that has nothing to do.
func (ln *line) drop() {
	if ln.dropped {
		return
	}
	ln.dropped = true
	at := &ln.lock.lines
	for *at != ln {
		at = &(*at).next
	}
	*at = ln.next
	if ln.lock.lines == nil {
		delete(ln.shard.locks, ln.lock.key)
	}
}
