package core

import "time"

// A lease lingers if the process keeps it although nobody holds or wants it. It ends
// with Policy.Linger, with the lease, with the engine, or as soon as another process is
// heard to wait.

// linger keeps a lease that nobody holds for so long.
func (ln *line) linger(tn *tenure, d time.Duration, now time.Time) {
	ln.engine.held.Add(1) // it counts among those, so that half of them at most linger
	tn.lingers = at(now).add(d)
	tn.schedule()
}

// lingering returns the line's lease that lingers, or nil.
func (ln *line) lingering() *tenure {
	if tn := ln.tenures; tn != nil && tn.hold == nil && tn.lingers > 0 {
		return tn
	}
	return nil
}

// settle ends the lingering of a lease, because it is wanted again or given back.
func (tn *tenure) settle() {
	if tn.lingers > 0 {
		tn.lingers = 0
		tn.line.engine.held.Add(-1)
	}
}

// reuse gives a lease that lingers to the caller who has just come.
func (ln *line) reuse(w *waiter) {
	if tn := ln.lingering(); tn != nil && ln.first == w {
		tn.settle()
		now := time.Now()
		ln.move(tn, ln.situation(tn, nil, now), now)
	}
}

// recall gives back what lingers in other lines than the one that is used.
func (lk *lock) recall(used *line) {
	for ln := lk.lines; ln != nil; ln = ln.next {
		if tn := ln.lingering(); tn != nil && ln != used {
			ln.giveBack(tn, 0)
		}
	}
}

// recall gives back a lease that lingers, if another process wants it or its time is
// over.
func (tn *tenure) recall(now time.Time) {
	if tn.lingers > 0 && tn.line.situation(tn, nil, now).decide() == stepGiveBack {
		tn.line.giveBack(tn, 0)
	}
}

// vacant reports whether the process has the lease of the key, and nobody who holds it
// yet: it is about to go to the first waiter.
func (ln *line) vacant() bool {
	return ln.mode == Exclusive && ln.tenures != nil && ln.tenures.hold == nil
}
