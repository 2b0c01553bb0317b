package check

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// A second opinion: Porcupine looks for an order of all operations on a key, each at some
// moment between its call and its return, in which a lock with a guarded counter behind it
// would have answered as it did. It knows neither claims nor deadlines. Those who may hold
// together are readers to it: how many a semaphore has room for is left to S1, as the
// readers of one process share a place in it. So is for how long a key is kept, since it
// knows no times; and each of several keys that were asked for together is a lock by itself.

// pieceLength is how many operations are judged at a time, as far as the key is free in
// between.
const pieceLength = 400

// action is the input of an operation.
type action struct {
	op    history.Op // Acquire, Release, Read or Write
	token int64
	value int64 // read or written
	reads bool  // it is a reader's
	stale bool  // the guard refused it
}

// state is the lock's and that of what it protects.
type state struct {
	holder  int64 // token of the writer that has it; 0 if none does
	readers int   // that have it
	last    int64 // token that was granted
	alone   int64 // of these, the last to a writer
	largest int64 // token that the guard has seen
	writers int64 // of these, the largest of a writer
	counter int64
}

func (s state) apply(a action) (state, bool) {
	switch a.op {
	case history.Acquire:
		if s.holder != 0 || !a.reads && s.readers > 0 || a.token <= s.before(a) {
			return s, false
		}
		s.last = max(s.last, a.token)
		if a.reads {
			s.readers++
		} else {
			s.holder, s.alone = a.token, a.token
		}
	case history.Release:
		switch {
		case a.reads && s.readers > 0:
			s.readers--
		case !a.reads && s.holder == a.token:
			s.holder = 0
		default:
			return s, false
		}
	default:
		least := s.largest
		if a.reads {
			least = s.writers
		}
		if stale := a.token < least; stale || a.stale {
			return s, stale == a.stale
		}
		s.largest = max(s.largest, a.token)
		if !a.reads {
			s.writers = a.token
		}
		if a.op == history.Read {
			return s, a.value == s.counter
		}
		s.counter = a.value
	}
	return s, true
}

// before is the token that one which is granted is larger than.
func (s state) before(a action) int64 {
	if a.reads {
		return s.alone
	}
	return s.last
}

// linearity judges each key in pieces.
func (h *judged) linearity() {
	for _, key := range h.keys {
		s := state{}
		for _, p := range h.pieces(key) {
			h.search(key, s, p)
			s = p.after(s)
		}
	}
}

// piece is a part of what happened to a key, from one moment at which nobody had it to
// another.
type piece struct {
	from, to int64
	claims   []*Claim
	guarded  []*history.Event
}

// stretch is a time in the middle of which a history cannot be cut.
type stretch struct {
	span
	claim *Claim         // either this
	event *history.Event // or this
}

// pieces cuts between the claims, not between the calls of acquisitions, of which some is
// nearly always under way: one that returns after a cut counts from the cut. It may have
// been granted before. But in an order of operations in which it is, it can as well come
// right after the cut: from its grant to its return nobody else had the lock.
func (h *judged) pieces(key string) []*piece {
	var all []stretch
	claims := h.claims[key]
	for i, c := range claims {
		from := c.Start
		if c.End < c.Start { // it was over when it was told, and others may have come between
			from = c.Called
		}
		all = append(all, stretch{span: span{from, h.over(claims, i)}, claim: c})
	}
	for _, e := range h.guarded[key] {
		all = append(all, stretch{span: span{e.Call, e.Return}, event: e})
	}
	slices.SortStableFunc(all, func(a, b stretch) int { return cmp.Compare(a.from, b.from) })
	var out []*piece
	p, events := &piece{}, 0
	for _, s := range all {
		if s.from > p.to && events >= pieceLength {
			out = append(out, p)
			p, events = &piece{from: p.to, to: p.to}, 0
		}
		p.to = max(p.to, s.to)
		if s.claim != nil {
			p.claims = append(p.claims, s.claim)
			events += 2
		} else {
			p.guarded = append(p.guarded, s.event)
			events++
		}
	}
	return append(out, p)
}

// over says by when a claim's lease had ended: when its release was answered, or else when
// the next one got the key that excludes it.
func (h *judged) over(claims []*Claim, i int) int64 {
	c, end := claims[i], h.end+1
	switch {
	case c.Released != nil && c.Released.OK():
		end = c.Released.Return
	default:
		for _, next := range claims[i+1:] {
			if c.Exclusive() || next.Exclusive() {
				end = next.Start
				break
			}
		}
	}
	return max(end, c.Start, c.End)
}

// after is the state at a piece's end.
func (p *piece) after(s state) state {
	for _, c := range p.claims {
		s.last = max(s.last, c.Token)
		if c.Exclusive() {
			s.alone = max(s.alone, c.Token)
		}
	}
	// An answer is noted when it takes effect.
	for _, e := range slices.SortedFunc(slices.Values(p.guarded), func(a, b *history.Event) int { return cmp.Compare(a.Return, b.Return) }) {
		if e.OK() {
			s.largest = max(s.largest, e.Token)
			if e.Mode == "" {
				s.writers = max(s.writers, e.Token)
			}
			s.counter = e.Value
		}
	}
	return s
}

// search has Porcupine judge a piece. If the store lost its data meanwhile, only what the
// guard did is judged.
func (h *judged) search(key string, begin state, p *piece) {
	var ops []porcupine.Operation
	if !h.losesWithin(p.from, p.to) {
		for i, c := range p.claims {
			ops = append(ops,
				porcupine.Operation{ClientId: c.id(), Input: action{op: history.Acquire, token: c.Token, reads: !c.Exclusive()}, Call: max(c.Called, p.from), Return: c.Start},
				porcupine.Operation{ClientId: c.id(), Input: action{op: history.Release, token: c.Token, reads: !c.Exclusive()}, Call: c.End, Return: h.over(p.claims, i)})
		}
	}
	for _, e := range p.guarded {
		ops = append(ops, porcupine.Operation{
			ClientId: e.Process<<16 + e.Client,
			Input:    action{op: e.Op, token: e.Token, value: e.Value, reads: e.Mode != "", stale: e.Error == history.Stale}, Call: e.Call, Return: e.Return,
		})
	}
	if len(ops) == 0 {
		return
	}
	h.report.Figures.Linear += len(ops)
	h.report.Figures.Pieces++
	model := porcupine.Model{
		Init: func() any { return begin },
		Step: func(s, input, _ any) (bool, any) {
			next, ok := s.(state).apply(input.(action))
			return ok, next
		},
	}
	switch porcupine.CheckOperationsTimeout(model, ops, h.Search) {
	case porcupine.Illegal:
		h.found("linear", key, p.from, p.to, "no order of these %d operations is that of a lock with a guarded counter", len(ops))
	case porcupine.Unknown:
		h.found("linear", key, p.from, p.to, "whether these %d operations have an order was not found out within %v", len(ops), h.Search)
	}
}

func (c *Claim) id() int { return c.Process<<16 + c.Client }

// losesWithin reports whether holders may not have known that the store had lost their
// leases.
func (h *judged) losesWithin(from, to int64) bool {
	return slices.ContainsFunc(h.faults, func(f *history.Event) bool {
		return f.Lossy && f.Call <= to && f.Return+2*int64(h.TTL) >= from
	})
}
