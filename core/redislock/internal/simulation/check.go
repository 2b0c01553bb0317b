package simulation

import (
	"fmt"
	"slices"
	"time"
)

// Rules says what to hold a history to.
type Rules struct {
	// Exclusive: no more claims of one key overlap than each has room for, and
	// what an acquisition gets is larger than what any got that had returned
	// before and excludes it, or had held before. All that breaks while a holder does not know that the
	// server has lost its data, or that its clock has jumped ahead. An owner whose end
	// was confirmed neither holds nor waits again, unless the server has lost its data.
	// What the server issues rises always, which World itself checks.
	Exclusive bool

	// From when on a free key with somebody waiting for it must be granted
	// within Wake; zero for never.
	Healthy time.Time
	Wake    time.Duration

	// Grace is how much later than it had to a call may return.
	Grace time.Duration
}

// Check returns what a history breaks.
func (h *History) Check(r Rules) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.violations)
	if r.Exclusive {
		out = append(out, h.overlaps()...)
		out = append(out, h.disorder()...)
		out = append(out, h.unfenced()...)
		out = append(out, h.ghosts...)
	}
	out = append(out, h.overdue(r.Grace)...)
	if !r.Healthy.IsZero() {
		out = append(out, h.sleepers(r.Healthy, r.Wake)...)
	}
	return out
}

func (h *History) at(t time.Time) string {
	return fmt.Sprintf("%.6f ms", t.Sub(h.start).Seconds()*1000)
}

// byKey sorts into groups of one key each.
func byKey[T any](all []T, key func(T) string) map[string][]T {
	out := make(map[string][]T)
	for _, x := range all {
		out[key(x)] = append(out[key(x)], x)
	}
	return out
}

// holder is who counts as one: a caller, or all readers of a process, which share a
// lease.
type holder struct {
	process int
	token   int64 // 0 for readers
}

func (c Claim) holder() holder {
	if c.Room == 0 {
		return holder{process: c.Process}
	}
	return holder{c.Process, c.Token}
}

// overlaps finds claims of one key that are more than one of them has room for.
func (h *History) overlaps() []string {
	var out []string
	for key, claims := range byKey(h.claims, func(c Claim) string { return c.Key }) {
		claims = slices.DeleteFunc(claims, func(c Claim) bool { return !c.End.After(c.Start) })
		slices.SortFunc(claims, func(a, b Claim) int { return a.Start.Compare(b.Start) })
		var present []Claim
		for _, c := range claims {
			present = slices.DeleteFunc(present, func(o Claim) bool { return !o.End.After(c.Start) })
			present = append(present, c)
			holders := make(map[holder]bool)
			for _, o := range present {
				holders[o.holder()] = true
			}
			for _, o := range present {
				if o.Room > 0 && len(holders) > o.Room {
					out = append(out, fmt.Sprintf("exclusion: on %s process %d (token %d, room %d) claims from %s, the %dth while process %d (token %d, room %d) claims until %s",
						key, c.Process, c.Token, c.Room, h.at(c.Start), len(holders), o.Process, o.Token, o.Room, h.at(o.End)))
				}
			}
		}
	}
	return out
}

// disorder finds acquisitions that excluded one another, of which one returned before
// the other was called and has no smaller token. Who can hold together may have tokens
// in any order.
func (h *History) disorder() []string {
	var out []string
	granted := slices.DeleteFunc(slices.Clone(h.attempts), func(a Attempt) bool { return !a.Granted })
	for key, byCall := range byKey(granted, func(a Attempt) string { return a.Key }) {
		byReturn := slices.Clone(byCall)
		slices.SortFunc(byCall, func(a, b Attempt) int { return a.Call.Compare(b.Call) })
		slices.SortFunc(byReturn, func(a, b Attempt) int { return a.Return.Compare(b.Return) })
		var largest, largestAlone Attempt // of those that returned before
		i := 0
		for _, b := range byCall {
			for ; i < len(byReturn) && byReturn[i].Return.Before(b.Call); i++ {
				if byReturn[i].Token > largest.Token {
					largest = byReturn[i]
				}
				if byReturn[i].Room == 1 && byReturn[i].Token > largestAlone.Token {
					largestAlone = byReturn[i]
				}
			}
			before := largestAlone
			if b.Room == 1 {
				before = largest
			}
			if b.Token <= before.Token {
				out = append(out, fmt.Sprintf("tokens: on %s the call of process %d at %s got %d after %d was returned at %s",
					key, b.Process, h.at(b.Call), b.Token, before.Token, h.at(before.Return)))
			}
		}
		seen := make(map[int64]Attempt)
		for _, a := range byCall {
			if b, ok := seen[a.Token]; ok {
				out = append(out, fmt.Sprintf("tokens: on %s processes %d and %d both got %d", key, b.Process, a.Process, a.Token))
			}
			seen[a.Token] = a
		}
	}
	return out
}

// unfenced finds those who held alone after another who did, and have no larger token: what is fenced
// by the other's would refuse them, and the other later be let in.
func (h *History) unfenced() []string {
	var out []string
	alone := slices.DeleteFunc(slices.Clone(h.claims), func(c Claim) bool { return c.Room != 1 || !c.End.After(c.Start) })
	for key, byStart := range byKey(alone, func(c Claim) string { return c.Key }) {
		byEnd := slices.Clone(byStart)
		slices.SortFunc(byStart, func(a, b Claim) int { return a.Start.Compare(b.Start) })
		slices.SortFunc(byEnd, func(a, b Claim) int { return a.End.Compare(b.End) })
		var largest Claim // of those that had ended
		i := 0
		for _, c := range byStart {
			for ; i < len(byEnd) && byEnd[i].End.Before(c.Start); i++ {
				if byEnd[i].Token > largest.Token {
					largest = byEnd[i]
				}
			}
			if c.Token <= largest.Token {
				out = append(out, fmt.Sprintf("tokens: on %s process %d holds from %s with %d after process %d held with %d until %s",
					key, c.Process, h.at(c.Start), c.Token, largest.Process, largest.Token, h.at(largest.End)))
			}
		}
	}
	return out
}

// overdue finds calls that returned too late.
func (h *History) overdue(grace time.Duration) []string {
	var out []string
	for _, a := range h.attempts {
		if !a.By.IsZero() && a.Return.Sub(a.By) > grace {
			out = append(out, fmt.Sprintf("return: on %s the call of process %d at %s had to return by %s and did at %s",
				a.Key, a.Process, h.at(a.Call), h.at(a.By), h.at(a.Return)))
		}
	}
	return out
}

// sleepers finds times in which callers waited for a key that nobody held.
func (h *History) sleepers(from time.Time, limit time.Duration) []string {
	type change struct {
		at         time.Time
		wait, hold int
	}
	var out []string
	changes := make(map[string][]change)
	for _, a := range h.attempts {
		if a.Waits {
			changes[a.Key] = append(changes[a.Key], change{a.Call, 1, 0}, change{a.Return, -1, 0})
		}
	}
	for _, c := range h.claims {
		changes[c.Key] = append(changes[c.Key], change{c.Start, 0, 1}, change{c.Gone, 0, -1})
	}
	for key, list := range changes {
		slices.SortStableFunc(list, func(a, b change) int { return a.at.Compare(b.at) })
		waiting, holding := 0, 0
		var since time.Time // when the key became free while somebody waited, or zero
		for _, c := range list {
			if !since.IsZero() && c.at.After(from) {
				if slept := c.at.Sub(later(since, from)); slept > limit {
					out = append(out, fmt.Sprintf("wake-up: %s was free for %v until %s while %d waited", key, slept, h.at(c.at), waiting))
				}
			}
			waiting += c.wait
			holding += c.hold
			switch {
			case waiting == 0 || holding > 0:
				since = time.Time{}
			case since.IsZero():
				since = c.at
			}
		}
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
