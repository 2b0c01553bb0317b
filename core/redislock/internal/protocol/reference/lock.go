package reference

import (
	"maps"
	"slices"
)

// scanLimit is how many places of the queue one call looks at.
const scanLimit = 64

// deadLimit is how many of them a refusal looks at.
const deadLimit = 16

// maxBuried is how many owners that were given up a lock remembers.
const maxBuried = 4

// maxTraces is how many traces of places a lock remembers.
const maxTraces = 32

// trace is that of the request that an owner made.
type trace struct{ owner, text string }

// lock is all that the server knows of one key. Times are in ms.
type lock struct {
	holders []*holder

	thin bool // the key is a string: one exclusive lease, and nothing else

	token       int64    // the next one that is issued is greater
	buried      []string // owners that were given up, newest first
	buriedUntil int64
	queue       []*place // nil where a place was removed from the middle
	head        int64    // the index of the first place of queue; those behind it have the next ones

	taker  trace           // of who was granted the key last, of those who had one
	traces map[int64]trace // of places, by their index modulo maxTraces

	ousted int64 // the largest token up to which leases were taken from their holders

	until int64 // when the server forgets all this
}

// holder is one lease.
type holder struct {
	owner   string // empty while the key is kept for MinHold
	channel string
	room    int64 // how many may hold together; 0 for any number
	token   int64 // 0 while only the holder knows it
	expires int64
	length  int64 // the longest that the lease was ever given at once
}

// place is an owner's place in the queue.
type place struct {
	owner    string
	channel  string
	placeTTL int64
	limit    int64
	room     int64
}

// ends is when the place ends, also if the clock has gone back.
func (p *place) ends(now int64) int64 { return min(p.limit, now+p.placeTTL) }

func (l *lock) clone() *lock {
	d := *l
	d.buried, d.traces = slices.Clone(l.buried), maps.Clone(l.traces)
	d.holders = make([]*holder, len(l.holders))
	for i, h := range l.holders {
		g := *h
		d.holders[i] = &g
	}
	d.queue = make([]*place, len(l.queue))
	for i, p := range l.queue {
		if p != nil {
			q := *p
			d.queue[i] = &q
		}
	}
	return &d
}

// equal compares all but until, which changes with every write.
func (l *lock) equal(o *lock) bool {
	same := func(a, b *place) bool { return a == b || a != nil && b != nil && *a == *b }
	return l.token == o.token && l.ousted == o.ousted && slices.Equal(l.buried, o.buried) && l.buriedUntil == o.buriedUntil &&
		l.taker == o.taker && maps.Equal(l.traces, o.traces) && slices.EqualFunc(l.queue, o.queue, same) &&
		slices.EqualFunc(l.holders, o.holders, func(a, b *holder) bool { return *a == *b })
}

func (l *lock) waiting() int64 {
	n := int64(0)
	for _, p := range l.queue {
		if p != nil {
			n++
		}
	}
	return n
}

func (l *lock) placeOf(owner string) int {
	return slices.IndexFunc(l.queue, func(p *place) bool { return p != nil && p.owner == owner })
}

// removePlace removes a place, and the removed places next to it at either end of the queue,
// scanLimit of them at most.
func (l *lock) removePlace(i int) {
	l.queue[i] = nil
	if l.waiting() == 0 {
		l.head += int64(len(l.queue))
		l.queue = nil
		return
	}
	switch i {
	case 0:
		l.skip()
		for n := 0; n < scanLimit && l.queue[0] == nil; n++ {
			l.skip()
		}
	case len(l.queue) - 1:
		l.queue = l.queue[:i]
		for n := 0; n < scanLimit && l.queue[len(l.queue)-1] == nil; n++ {
			l.queue = l.queue[:len(l.queue)-1]
		}
	}
}

// skip removes what is first in the queue.
func (l *lock) skip() { l.queue, l.head = l.queue[1:], l.head+1 }

// noteTrace keeps the trace of the request for place i of the queue.
func (l *lock) noteTrace(i int, owner, text string) {
	if text == "" {
		return
	}
	if l.traces == nil {
		l.traces = make(map[int64]trace)
	}
	l.traces[(l.head+int64(i))%maxTraces] = trace{owner, text}
}

// traceOf returns the trace of the request for place i of the queue.
func (l *lock) traceOf(i int) string {
	return l.traces[(l.head+int64(i))%maxTraces].of(l.queue[i].owner)
}

// of returns the trace if it is the owner's.
func (t trace) of(owner string) string {
	if t.owner != owner {
		return ""
	}
	return t.text
}

func (l *lock) bury(owner string) {
	if slices.Contains(l.buried, owner) {
		return
	}
	l.buried = slices.Insert(l.buried, 0, owner)
	if len(l.buried) > maxBuried {
		l.buried = l.buried[:maxBuried]
	}
}

// since returns the token of a lease, or one that it is not less than.
func (h *holder) since() int64 {
	if h.token > 0 {
		return h.token
	}
	return max(h.expires-h.length, 0) * 1000
}

// holder returns the lease of an owner, or nil.
func (l *lock) holder(owner string) *holder {
	i := slices.IndexFunc(l.holders, func(h *holder) bool { return owner != "" && h.owner == owner })
	if i < 0 {
		return nil
	}
	return l.holders[i]
}

// end removes a lease.
func (l *lock) end(h *holder) {
	l.holders = slices.DeleteFunc(l.holders, func(o *holder) bool { return o == h })
}

// fits reports whether one more owner with that room may hold.
func (l *lock) fits(room int64) bool {
	for _, h := range l.holders {
		if h.room != 0 && int64(len(l.holders)) >= h.room {
			return false
		}
	}
	return room == 0 || int64(len(l.holders)) < room
}

// exclusive reports whether the key is held exclusively.
func (l *lock) exclusive() bool { return len(l.holders) == 1 && l.holders[0].room == 1 }
