package reference

import "slices"

// looks is how many places of the queue one call looks at.
const looks = 64

// remembered is how many ended owners a lock remembers.
const remembered = 4

// lock is all that the server knows of one key. Times are in ms.
type lock struct {
	held    bool
	owner   string // empty while the key is kept for MinHold
	channel string
	expires int64
	length  int64 // the longest that the lease was ever given at once

	token int64
	ended []string // newest first
	queue []*place // nil where somebody left from the middle

	until int64 // when the server forgets all this
}

// place is an owner's place in the queue.
type place struct {
	owner   string
	channel string
	enrol   int64
	limit   int64
}

func (l *lock) clone() *lock {
	d := *l
	d.ended = slices.Clone(l.ended)
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
	return l.held == o.held && l.owner == o.owner && l.channel == o.channel && l.expires == o.expires &&
		l.length == o.length && l.token == o.token && slices.Equal(l.ended, o.ended) &&
		slices.EqualFunc(l.queue, o.queue, same)
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

func (l *lock) place(owner string) int {
	return slices.IndexFunc(l.queue, func(p *place) bool { return p != nil && p.owner == owner })
}

// leave empties a place. Nothing remains of places at the ends of the queue,
// except that one call clears at most so many beside the one left.
func (l *lock) leave(i int) {
	l.queue[i] = nil
	if l.waiting() == 0 {
		l.queue = nil
		return
	}
	switch i {
	case 0:
		l.queue = l.queue[1:]
		for n := 0; n < looks && l.queue[0] == nil; n++ {
			l.queue = l.queue[1:]
		}
	case len(l.queue) - 1:
		l.queue = l.queue[:i]
		for n := 0; n < looks && l.queue[len(l.queue)-1] == nil; n++ {
			l.queue = l.queue[:len(l.queue)-1]
		}
	}
}

func (l *lock) bury(owner string) {
	if slices.Contains(l.ended, owner) {
		return
	}
	l.ended = slices.Insert(l.ended, 0, owner)
	if len(l.ended) > remembered {
		l.ended = l.ended[:remembered]
	}
}

func (l *lock) free() {
	l.held, l.owner, l.channel, l.expires, l.length = false, "", "", 0, 0
}
