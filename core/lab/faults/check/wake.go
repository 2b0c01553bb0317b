package check

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// wake is L1 and L2: while somebody waits for a key that nobody has, it does not stay
// free for longer than a lost wake-up or what died can explain:
//
//   - for the driver's bound of a lost wake-up, also when pushes are lost or scripts
//     forgotten,
//   - after a process was killed, for T more,
//   - after a process was stopped or cut off, which others have to get over, for T and E
//     more: it may have held the key, and been the next to get it; or for as long as a
//     decision that hangs keeps a key, if that is longer,
//   - after an outage of the store, from its end, for the longest back-off besides, and so
//     for the process that was cut off. An answer that took long without a fault is an
//     outage too: the machine, or what else runs on it, has held the store up.
func (h *judged) wake() {
	for _, key := range h.keys {
		acquires := h.acquires[key]
		var longest int64
		for _, a := range acquires {
			longest = max(longest, a.Return-a.Call)
		}
		for _, free := range h.free(key) {
			begin := sort.Search(len(acquires), func(i int) bool { return acquires[i].Call >= free.from-longest })
			for _, a := range acquires[begin:] {
				if a.Call >= free.to {
					break
				}
				if from, to := max(free.from, a.Call), min(free.to, a.Return); to > from {
					h.waited(key, a, from, to)
				}
			}
		}
	}
}

// noteworthy is how long a key has to be free for it to be looked at.
const noteworthy = 20 * time.Millisecond

// span is a time.
type span struct{ from, to int64 }

// free returns when nobody had the key, but for times too short to matter. Who asks for
// several may have it before he has all of them, or wait for another one.
func (h *judged) free(key string) []span {
	var taken []span
	for _, c := range h.claims[key] {
		// A release that was answered ends later than the claim, by its way to the store.
		end := max(c.End, c.Start+c.Keep)
		if c.Released != nil {
			end = max(end, c.Released.Return)
		}
		taken = append(taken, span{c.Start, end})
	}
	for _, a := range h.acquires[key] {
		if a.Among > 1 {
			taken = append(taken, span{a.Call, a.Return})
		}
	}
	slices.SortFunc(taken, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out []span
	var since int64
	for _, t := range append(taken, span{h.end, h.end}) {
		if t.from-since > int64(noteworthy) {
			out = append(out, span{since, t.from})
		}
		since = max(since, t.to)
	}
	return out
}

// waited judges a caller's waiting while the key was free.
func (h *judged) waited(key string, a *history.Event, from, to int64) {
	bound, why := h.Wake, "in quiet times"
	from = max(from, h.began+int64(h.Start))
	settle := int64(h.Wake + h.TTL + h.PlaceTTL + h.Backoff)
	for _, f := range append(h.faults[:len(h.faults):len(h.faults)], h.slow...) {
		if f.Call >= to || f.Return+settle <= from || f.Op == history.Fault && !f.Outage {
			continue
		}
		least, since, name := h.Wake+h.TTL, f.Return, "after "+f.Name
		switch {
		case f.Op != history.Kill && f.Op != history.Fault:
			least, name = least+h.PlaceTTL+h.Backoff, "after a slow answer"
		case f.Op == history.Kill:
		case f.Process != 0 && f.Process != a.Process:
			least = max(least+h.PlaceTTL, h.Stuck+h.Wake)
			if to <= f.Return {
				since = f.Call
			}
		default:
			least += h.PlaceTTL + h.Backoff
		}
		from = max(from, since)
		if least > bound {
			bound, why = least, name
		}
	}
	if to <= from {
		return
	}
	h.longest("free and waited for, "+why, time.Duration(to-from))
	if to-from > int64(bound+h.Slack)+h.busy(from, to) {
		h.found("L1", key, from, to, "nobody had it for %s %s while process %d waited; %v are allowed, and %v more as the machine is busy",
			ms(to-from), why, a.Process, bound, h.Slack)
	}
}
