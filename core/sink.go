package core

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// sink takes in what the store pushes.
type sink struct{ engine *Engine }

var _ driver.Sink = sink{}

// Waiting notes that the store has queued an enrolment of this process.
func (s sink) Waiting(id driver.ID) {
	s.visit(id, func(ln *line, en *enrolment, _ *tenure) {
		if en != nil && !en.queued {
			en.queued = true
			ln.trouble = nil
			ln.failTries(0)
		}
	})
}

// Contended notes whether another process waits for a lease of this one.
func (s sink) Contended(id driver.ID, waiting bool) {
	s.visit(id, func(ln *line, en *enrolment, tn *tenure) {
		if tn == nil {
			en.contended = waiting // the grant is still on its way
			return
		}
		now := time.Now()
		if waiting != tn.contended || tn.renewing {
			tn.heard(waiting, 0, now) // a push may be old: it says nothing about this moment
		}
		tn.recall(now)
		ln.advance()
	})
}

// Lost ends a hold whose lease is gone at the store.
func (s sink) Lost(id driver.ID, _ error) {
	s.visit(id, func(ln *line, _ *enrolment, tn *tenure) {
		if tn != nil {
			ln.lose(tn)
		}
	})
}

// visit calls f with the enrolment or the tenure that id names, if it is one of
// the engine's.
func (s sink) visit(id driver.ID, f func(*line, *enrolment, *tenure)) {
	sh := s.engine.shardOf(id.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	lk := sh.locks[id.Key]
	if lk == nil {
		return
	}
	for ln := lk.lines; ln != nil; ln = ln.next {
		if en := ln.asking; en != nil && en.Owner == id.Owner {
			f(ln, en, nil)
			return
		}
		for tn := ln.tenures; tn != nil; tn = tn.next {
			if tn.Owner == id.Owner {
				f(ln, nil, tn)
				return
			}
		}
	}
}
