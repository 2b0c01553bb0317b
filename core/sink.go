package core

import "github.com/lockaround/lockaround/core/driver"

// sink takes in what the store pushes.
type sink struct{ engine *Engine }

var _ driver.Sink = sink{}

// Waiting notes that the store has queued an enrolment of this process.
func (s sink) Waiting(id driver.ID) {
	s.visit(id.Key, func(ln *line) {
		if en := ln.asking; en != nil && en.Owner == id.Owner && !en.queued {
			en.queued = true
			ln.failures, ln.fault = 0, nil
			ln.failTries(0)
		}
	})
}

// Contended notes whether another process waits for a lease of this one.
func (s sink) Contended(id driver.ID, waiting bool) {
	s.visit(id.Key, func(ln *line) {
		switch tn, en := ln.tenure, ln.asking; {
		case tn != nil && tn.Owner == id.Owner:
			tn.heard(waiting, tn.quiet) // a push may be old: it says nothing about this moment
		case en != nil && en.Owner == id.Owner:
			en.contended = waiting // the grant is still on its way
		}
	})
}

// Lost ends a hold whose lease is gone at the store.
func (s sink) Lost(id driver.ID, _ error) {
	s.visit(id.Key, func(ln *line) {
		if tn := ln.tenure; tn != nil && tn.Owner == id.Owner {
			ln.lose(tn)
		}
	})
}

func (s sink) visit(key string, f func(*line)) {
	sh := s.engine.shardOf(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if ln := sh.lines[key]; ln != nil {
		f(ln)
	}
}
