package check

import (
	"cmp"
	"slices"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// exclusion is S1: claims of one key are disjoint, unless both are of those who hold
// together, and are no more than the smallest semaphore among them has room for. Two may
// overlap if the store lost the lease of the older one, for as long as its holder cannot
// know: these are counted.
func (h *judged) exclusion() {
	for _, key := range h.keys {
		granted := h.firstOf(key)
		var present []*Claim
		for _, c := range h.claims[key] {
			if c.End <= c.Start {
				continue
			}
			present = slices.DeleteFunc(present, func(o *Claim) bool { return o.End <= c.Start })
			var beside []*Claim // with whom it may hold together
			for _, o := range present {
				to := min(o.End, c.End)
				f := h.excuse(min(granted[o.Lease], granted[c.Lease]), c.Start, to)
				switch {
				case !c.Exclusive() && !o.Exclusive() && (f == nil || !crowded(append(present, c))):
					beside = append(beside, o)
				case f != nil:
					h.report.Figures.Lost[f.Name]++
					h.report.Doubles = append(h.report.Doubles, Double{key, f.Name, c.Start, to})
				default:
					h.found("S1", key, c.Start, to, "process %d (token %d) has the %slock for %s while process %d (token %d) has it",
						c.Process, c.Token, mode(c), ms(to-c.Start), o.Process, o.Token)
				}
			}
			h.report.Figures.Beside += len(beside)
			if crowded(append(beside, c)) {
				h.found("S1", key, c.Start, c.End, "process %d (token %d) has the %slock while %d others have it, for whom and it a semaphore has no room",
					c.Process, c.Token, mode(c), len(beside))
			}
			h.reading(key, c, granted[c.Lease])
			present = append(present, c)
		}
	}
}

func mode(c *Claim) string {
	if c.Exclusive() {
		return ""
	}
	return c.Mode + " "
}

// crowded reports whether those who hold a key together are more than a semaphore among
// them has room for. The readers of a process share a lease and count as one.
func crowded(claims []*Claim) bool {
	room, n := 0, 0
	leases := map[Lease]bool{}
	for _, c := range claims {
		if c.Room > 0 && (room == 0 || c.Room < room) {
			room = c.Room
		}
		if c.Mode != history.Shared || !leases[c.Lease] {
			n++
		}
		if c.Mode == history.Shared {
			leases[c.Lease] = true
		}
	}
	return room > 0 && n > room
}

// reading is S1 too, as the guard sees it: what a holder who is not exclusive reads does
// not change for as long as it has its claim, and it is not refused.
func (h *judged) reading(key string, c *Claim, granted int64) {
	if c.Exclusive() {
		return
	}
	var first *history.Event
	for _, e := range h.reads[reader{c.Process, c.Client, key, c.Token}] {
		switch {
		case e.Call < c.Start || e.Return > c.End || h.excuse(granted, e.Call, e.Return) != nil:
			continue
		case e.Error == history.Stale:
			h.found("S1", key, c.Start, e.Return, "process %d (token %d) has the %s lock, and a later holder has written", c.Process, c.Token, c.Mode)
		case first != nil && e.Value != first.Value:
			h.found("S1", key, first.Call, e.Return, "process %d (token %d) has the %s lock, and what it reads changes from %d to %d",
				c.Process, c.Token, c.Mode, first.Value, e.Value)
		}
		first = e
	}
}

// reader is who reads, by which claim.
type reader struct {
	process, client int
	key             string
	token           int64
}

// keep is that a key which is to stay taken for a while after it was granted does, also
// when its holder has released it.
func (h *judged) keep() {
	for _, key := range h.keys {
		claims := h.claims[key]
		for i, c := range claims {
			if c.Keep == 0 {
				continue
			}
			if c.Released != nil && c.Released.OK() {
				h.report.Figures.Kept++
			}
			for _, next := range claims[i+1:] {
				// Granted after its call, by the store's clock, which counts whole ms.
				until := c.Called + c.Keep - c.Keep/100 - 2e6
				if next.Start >= until {
					break
				}
				if h.excuse(c.Called, next.Start, next.Start) == nil {
					h.found("keep", key, c.Start, next.Start, "process %d (token %d) has it %s after process %d (token %d) asked for it, which keeps it for %s from its grant",
						next.Process, next.Token, ms(next.Start-c.Called), c.Process, c.Token, ms(c.Keep))
				}
			}
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

// excuse returns the fault by which the store lost its data after it had granted a lease,
// so that from then on, and until T later, its holder may not know that it has no lock: the
// last one of several, nil if there was none.
func (h *judged) excuse(granted, from, to int64) *history.Event {
	for _, f := range slices.Backward(h.faults) {
		if f.Lossy && granted <= f.Return && f.Call <= from && to <= f.Return+int64(h.TTL) {
			return f
		}
	}
	return nil
}

// tokens is S2: who acquires later has the larger token, unless both may hold together.
// Later is who was called when the
// other had returned; and who returned when the other had, if it has the lock then, for
// it cannot have got it before the other did. A process that cannot know yet that the
// store has lost its lease may hand it on with the tokens that follow.
func (h *judged) tokens() {
	for _, key := range h.keys {
		granted := h.firstOf(key)
		byStart := h.claims[key]
		inTurn := slices.Clone(byStart)
		slices.SortStableFunc(inTurn, func(a, b *Claim) int { return cmp.Compare(a.settled(), b.settled()) })
		var largest, alone *Claim // of those that had returned, and of the exclusive among them
		i := 0
		for _, c := range inTurn {
			for ; i < len(byStart) && byStart[i].Start < c.settled(); i++ {
				o := byStart[i]
				if largest == nil || o.Token > largest.Token {
					largest = o
				}
				if o.Exclusive() && (alone == nil || o.Token > alone.Token) {
					alone = o
				}
			}
			before := largest
			if !c.Exclusive() {
				before = alone
			}
			// What was told when it was over may have been told late.
			if before == nil || c.Token > before.Token || h.excuse(granted[c.Lease], before.Start, min(c.Start, c.Deadline)) != nil {
				continue
			}
			h.found("S2", key, before.Start, c.Start, "process %d got token %d, %s after process %d had got %d",
				c.Process, c.Token, ms(c.Start-before.Start), before.Process, before.Token)
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
