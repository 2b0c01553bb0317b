package manager

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// events handles what the store pushes.
type events struct{ manager *Manager }

var (
	_ driver.Follower = events{}
	_ driver.Hearer   = events{}
)

// Waiting notes that the store has queued a request of this process.
func (s events) Waiting(id driver.ID) {
	s.visit(id, func(ln *line, rq *request, _ *lease) {
		if rq != nil && !rq.queued() {
			rq.queuedAt = ln.shard.step()
			ln.trouble, rq.failed = nil, nil
			ln.failTries(0)
			s.manager.changed(ln.lock)
		}
	})
}

// Failed notes what a try of a request has come to, which the driver repeats.
func (s events) Failed(id driver.ID, err error) {
	s.visit(id, func(_ *line, rq *request, _ *lease) {
		if rq != nil {
			rq.failed = err
		}
	})
}

// Contended notes whether another process waits for a lease of this one.
func (s events) Contended(id driver.ID, waiting bool) {
	s.visit(id, func(ln *line, rq *request, l *lease) {
		if l == nil {
			rq.contended = waiting // the grant is still on its way
			return
		}
		now := time.Now()
		if waiting != l.contended || l.expecting() {
			l.heard(waiting, 0, now) // a push may be old: it says nothing about now
		}
		l.recall(now)
		ln.advance()
	})
}

// Lost ends a hold whose lease is gone at the store.
func (s events) Lost(id driver.ID, _ error) {
	s.visit(id, func(ln *line, rq *request, l *lease) {
		if l == nil {
			rq.lost = true // the grant is still on its way
			return
		}
		ln.lose(l)
	})
}

// visit calls f with the request or the lease that id names, if it is one of
// the manager's.
func (s events) visit(id driver.ID, f func(*line, *request, *lease)) {
	sh := s.manager.shardOf(id.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	lk := sh.locks[id.Key]
	if lk == nil {
		return
	}
	for ln := lk.lines; ln != nil; ln = ln.next {
		if rq := ln.asking; rq != nil && rq.Owner == id.Owner {
			f(ln, rq, nil)
			return
		}
		for l := ln.leases; l != nil; l = l.next {
			if l.Owner == id.Owner {
				f(ln, nil, l)
				return
			}
		}
	}
}
