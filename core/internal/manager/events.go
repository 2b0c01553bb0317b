package manager

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
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
			ln.refuseTries(0)
			ln.bound()
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
		l.returnUnwanted(now)
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
		ln.lose(l, notThere)
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

// holder returns who holds the key, as far as is known: this process, or whom the store has
// named to the line's request.
func (ln *line) holder() driver.Origin {
	for other := ln.lock.lines; other != nil; other = other.next {
		if l := other.leases; l != nil {
			own := driver.Origin{Identity: ln.manager.Identity}
			if l.hold != nil {
				own.Trace = l.hold.trace()
			}
			return own
		}
	}
	if ln.asking != nil {
		return ln.asking.holder
	}
	return driver.Origin{}
}

// refusal returns the refusal of a caller for whom the key is taken. It names the holder.
func (ln *line) refusal(why Reason) *Refusal { return &Refusal{Why: why, Holder: ln.holder()} }

// TakenBy notes who holds the key that a request of this process waits for.
func (s events) TakenBy(id driver.ID, holder driver.Origin) {
	s.visit(id, func(ln *line, rq *request, _ *lease) {
		if rq == nil {
			return
		}
		rq.holder = holder
		for w := ln.first; w != nil; w = w.next {
			w.follow(ln.holder)
		}
	})
}

// follow notes who holds the key that a traced caller waits for, the first time that it is known.
func (w *waiter) follow(holder func() driver.Origin) {
	if w.trace == nil || w.behind != nil {
		return
	}
	if by := holder(); by.Known() {
		w.behind = &by
	}
}

// link notes at the span of a wait who held the key.
func link(sp signals.Span, holder driver.Origin) {
	if holder.Known() {
		sp.Behind(holder.Identity, (*signals.Trace)(holder.Trace))
	}
}
