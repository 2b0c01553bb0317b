package zklock

import (
	"math"
	"slices"
)

// line is the members of a key, first come first. Those at its front hold the key:
// nobody is granted it before all who came earlier are, so that who holds can be
// told from the names alone, but for a writer that has lowered its lease.
//
// A line that was read after a member was made never misses who came before it, and
// who came before it never come back. So what it once allows it allows for good,
// also on a server that lags behind.
type line []member

// parseLine orders the names of a key's nodes and drops what is not the driver's.
func parseLine(names []string) line {
	l := make(line, 0, len(names))
	for _, name := range names {
		if m, ok := parseMember(name); ok {
			l = append(l, m)
		}
	}
	slices.SortFunc(l, func(a, b member) int { return int(a.seq) - int(b.seq) })
	return l
}

// index returns the place of a member, or -1.
func (l line) index(name string) int {
	return slices.IndexFunc(l, func(m member) bool { return m.name == name })
}

// marked returns the member of an owner.
func (l line) marked(mark string) (m member, ok bool) {
	i := slices.IndexFunc(l, func(m member) bool { return m.mark == mark })
	if i < 0 {
		return member{}, false
	}
	return l[i], true
}

// holders returns how many at the front hold the key. lowered says that the first
// of them is a writer that lets readers in.
func (l line) holders(lowered bool) int {
	room := int32(math.MaxInt32)
	for i, m := range l {
		if m.room != 0 && (i > 0 || !lowered) {
			room = min(room, m.room)
		}
		if int32(i) >= room {
			return i
		}
	}
	return len(l)
}

// behind returns how many wait, as the holder at index i sees it, whose own lease
// may be a lowered one. A writer before it has lowered its lease, or it would not
// hold.
func (l line) behind(i int, lowered bool) int {
	return len(l) - max(l.holders(i > 0 || lowered), i+1)
}

// writerFirst reports whether the first member may be a lowered writer that makes
// room for the member at index i.
func (l line) writerFirst(i int) bool {
	return i > 0 && l[0].room == 1 && i < l.holders(true)
}

// target is what a waiter watches: one node, or, if name is empty, all of the key.
type target struct {
	name string
	sole bool // nobody else is before the waiter
}

// target returns what the waiter at index i watches, with n holders: what has to
// change before it can be granted the key, and nothing else, so that a change wakes
// those only whom it may let in. Who shares watches the last writer before it, unless
// others before it wait for room in a semaphore; who does not watches the one before
// it, which, being granted the key, writes to its own node.
func (l line) target(i, n int) target {
	before := target{name: l[i-1].name, sole: i == 1}
	if l[i].room == 1 || i == 1 {
		return before
	}
	j := i - 1
	for j >= 0 && l[j].room != 1 {
		j--
	}
	switch {
	case j >= 0 && l[j+1:].holders(false) > i-j-1:
		return target{name: l[j].name} // all between are let in together
	case i == n && n > 1:
		return target{} // any of several holders makes room
	}
	return before
}
