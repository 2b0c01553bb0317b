package check

import (
	"slices"
	"sort"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// turn is that a key which is served strictly in turn goes to who came first: a caller who
// came after the earlier one has taken his place does not get it before him. Who may not
// have reached the store meanwhile, or has come to a store that has lost its data, may have
// lost his place. It is judged of writers alone: readers share the lease of their process.
func (h *judged) turn() {
	for _, key := range h.keys {
		waits := slices.DeleteFunc(slices.Clone(h.acquires[key]), func(a *history.Event) bool {
			return !a.Strict || !a.OK() || a.Mode != "" || a.Among > 1
		})
		for _, a := range waits {
			since := h.placed(a) + 2*h.busyIn(a.Process, a.Call, a.Return)
			later := sort.Search(len(waits), func(i int) bool { return waits[i].Call > since })
			if since >= a.Return || a.Return > a.Deadline {
				continue
			}
			h.report.Figures.InTurn++
			for _, b := range waits[later:] {
				if b.Call >= a.Return {
					break
				}
				if b.Return < a.Return && !h.mayHaveLostPlace(a) {
					h.found("turn", key, b.Call, b.Return, "process %d (token %d) came %s after process %d (token %d), and got it %s before",
						b.Process, b.Token, ms(b.Call-a.Call), a.Process, a.Token, ms(a.Return-b.Return))
				}
			}
		}
	}
}

// placed is by when somebody who waited had a place, unless his process was busy. One who is
// stopped or cut off in the middle of a decision may keep those who have come from taking
// theirs, and these have no order yet.
func (h *judged) placed(a *history.Event) int64 {
	by := a.Call + int64(h.Slack)
	if slices.ContainsFunc(h.faults, func(f *history.Event) bool {
		return f.Op == history.Fault && f.Outage && f.Call < by && f.Return+int64(h.Stuck) > a.Call
	}) {
		by += int64(h.Entry)
	}
	return by
}

// mayHaveLostPlace reports whether somebody who waited could not reach the store at times, or
// it was slow without a fault, as when the machine held it up.
func (h *judged) mayHaveLostPlace(a *history.Event) bool {
	settle := int64(h.Wake + h.TTL + h.PlaceTTL + h.Backoff)
	within := func(e *history.Event) bool { return e.Call < a.Return && e.Return+settle > a.Call }
	return slices.ContainsFunc(h.slow, within) || slices.ContainsFunc(h.faults, func(f *history.Event) bool {
		return f.Op == history.Fault && f.Outage && (f.Process == 0 || f.Process == a.Process) && within(f)
	})
}
