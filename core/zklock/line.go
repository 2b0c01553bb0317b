package zklock

import (
	"math"
	"slices"
)

// line is the members of a key, in the order of their creation. Those at its front hold the
// key. Nobody is granted the key before all who came earlier, so the names alone tell who
// holds it, except that a writer may have lowered its lease.
//
// A line that is read after a member was created shows all members before it that still exist.
// No member ever comes before an existing one. So a member that may hold the key once may hold
// it for good, even if the line was read from a server that lags behind.
type line []member

// parseLine orders the names of a key's nodes, and drops those that are not this driver's.
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

// index returns the index of a member, or -1.
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

// holders returns how many members at the front hold the key. lowered says that the first, if it is
// a writer, has lowered its lease, so that others may hold the key too.
func (l line) holders(lowered bool) int {
	capacity := int32(math.MaxInt32)
	for i, m := range l {
		if m.capacity != 0 && (i > 0 || m.capacity != 1 || !lowered) {
			capacity = min(capacity, m.capacity)
		}
		if int32(i) >= capacity {
			return i
		}
	}
	return len(l)
}

// behind returns how many wait behind the holder at index i. lowered says that this holder has
// lowered its own lease. A writer before it must have lowered its lease, as it would not hold
// the key otherwise.
func (l line) behind(i int, lowered bool) int {
	return len(l) - max(l.holders(i > 0 || lowered), i+1)
}

// target is what a waiter watches: one node, or all of the key if name is empty.
type target struct {
	name string
	sole bool // no other member is before the waiter
}

// target returns what the waiter at index i watches if there are n holders. It is what has to
// change before the waiter can hold the key, so that a change only wakes waiters that it may let
// in. A writer watches the member before it, which also writes to its own node when it is
// granted the key. Others watch the last writer before them, unless members in between wait
// for room in a semaphore: then they watch the member before them, or all of the key.
func (l line) target(i, n int) target {
	before := target{name: l[i-1].name, sole: i == 1}
	if l[i].capacity == 1 || i == 1 {
		return before
	}
	j := i - 1
	for j >= 0 && l[j].capacity != 1 {
		j--
	}
	switch {
	case i == n && n > 1:
		return target{} // any of several holders makes room
	case j >= 0 && l[j+1:].holders(false) > i-j-1:
		return target{name: l[j].name} // all in between are let in together
	}
	return before
}
