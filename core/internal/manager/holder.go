package manager

import (
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/signals"
)

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

// refuse returns the refusal of a caller for whom the key is taken. It names the holder.
func (ln *line) refuse(why Reason) *Refusal { return &Refusal{Why: why, Holder: ln.holder()} }

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
