package check

import (
	"cmp"
	"slices"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// exclusion is S1: claims of one key are disjoint. Two may overlap if the store lost the
// lease of the older one, for as long as its holder cannot know: these are counted.
func (h *judged) exclusion() {
	for _, key := range h.keys {
		granted := h.firstOf(key)
		var present []*Claim
		for _, c := range h.claims[key] {
			if c.End <= c.Start {
				continue
			}
			present = slices.DeleteFunc(present, func(o *Claim) bool { return o.End <= c.Start })
			for _, o := range present {
				to := min(o.End, c.End)
				if h.excused(min(granted[o.Lease], granted[c.Lease]), c.Start, to) {
					h.report.Figures.Lost++
					continue
				}
				h.found("S1", key, c.Start, to, "process %d (token %d) has the lock for %s while process %d (token %d) has it",
					c.Process, c.Token, ms(to-c.Start), o.Process, o.Token)
			}
			present = append(present, c)
		}
	}
}

// firstOf says when the first claim of each lease was asked for.
func (h *judged) firstOf(key string) map[Lease]int64 {
	out := map[Lease]int64{}
	for _, c := range h.claims[key] {
		if at, ok := out[c.Lease]; !ok || c.Called < at {
			out[c.Lease] = c.Called
		}
	}
	return out
}

// excused reports whether the store lost its data after it had granted a lease, so that
// from then on, and until T later, its holder may not know that it has no lock.
func (h *judged) excused(granted, from, to int64) bool {
	return slices.ContainsFunc(h.faults, func(f *history.Event) bool {
		return f.Lossy && granted <= f.Return && f.Call <= from && to <= f.Return+int64(h.TTL)
	})
}

// tokens is S2: who acquires later has the larger token. Later is who was called when the
// other had returned; and who returned when the other had, if it has the lock then, for
// it cannot have got it before the other did. A process that cannot know yet that the
// store has lost its lease may hand it on with the tokens that follow.
func (h *judged) tokens() {
	for _, key := range h.keys {
		granted := h.firstOf(key)
		byStart := h.claims[key]
		inTurn := slices.Clone(byStart)
		slices.SortStableFunc(inTurn, func(a, b *Claim) int { return cmp.Compare(a.settled(), b.settled()) })
		var largest *Claim // of those that had returned
		i := 0
		for _, c := range inTurn {
			for ; i < len(byStart) && byStart[i].Start < c.settled(); i++ {
				if largest == nil || byStart[i].Token > largest.Token {
					largest = byStart[i]
				}
			}
			// What was told when it was over may have been told late.
			if largest == nil || c.Token > largest.Token || h.excused(granted[c.Lease], largest.Start, min(c.Start, c.Deadline)) {
				continue
			}
			h.found("S2", key, largest.Start, c.Start, "process %d got token %d, %s after process %d had got %d",
				c.Process, c.Token, ms(c.Start-largest.Start), largest.Process, largest.Token)
		}
	}
}

// settled is when it was certain that whoever had the lock before had it before.
func (c *Claim) settled() int64 {
	if c.End > c.Start {
		return c.Start
	}
	return c.Called
}
