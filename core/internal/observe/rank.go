package observe

import (
	"cmp"
	"hash/maphash"
	"slices"
	"time"
)

// Ranked is a key that may be told of or shown, with how it is used.
type Ranked[Use any] struct {
	Name string
	Used Use
	Busy int64 // how much happened to it

	waited, held time.Time // since when somebody does; zero if nobody
	tie          uint64    // at random, but always the same for the name
}

// Waits notes a caller who waits since then.
func (c *Ranked[Use]) Waits(since time.Time) { c.waited = earlier(c.waited, since) }

// Holds notes a caller who holds the key since then.
func (c *Ranked[Use]) Holds(since time.Time) { c.held = earlier(c.held, since) }

// earlier returns the earlier of two times of which each may be zero for none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// compare puts in front who waits longest, then the busiest, then who holds longest. The names are
// no part of it: whoever sees keys without their names, and may lock some, would find the others'
// names by where they are among his own.
func (c *Ranked[Use]) compare(other *Ranked[Use]) int {
	return cmp.Or(
		compareSince(c.waited, other.waited),
		cmp.Compare(other.Busy, c.Busy),
		compareSince(c.held, other.held),
		cmp.Compare(c.tie, other.tie),
	)
}

func compareSince(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// ties is what the order of keys that are alike is made with.
var ties = maphash.MakeSeed()

// Ranking has the keys that may be told of or shown, by name.
type Ranking[Use any] map[string]*Ranked[Use]

// Of returns the key of a name, which is in the ranking from then on.
func (all Ranking[Use]) Of(name string) *Ranked[Use] {
	c := all[name]
	if c == nil {
		c = &Ranked[Use]{Name: name, tie: maphash.String(ties, name)}
		all[name] = c
	}
	return c
}

// Best returns the first of the keys in their order, at most so many.
func (all Ranking[Use]) Best(most int) []*Ranked[Use] {
	list := make([]*Ranked[Use], 0, len(all))
	for _, c := range all {
		list = append(list, c)
	}
	slices.SortFunc(list, (*Ranked[Use]).compare)
	return list[:min(len(list), most)]
}
