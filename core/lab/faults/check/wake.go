package check

import (
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// wake is L1 and L2: while somebody waits for a key that nobody has, it does not stay
// free for longer than a lost wake-up or what died can explain:
//
//   - in quiet times, for the driver's bound of a lost wake-up,
//   - after a process was killed, for T more,
//   - after anything else, from its end, for T, E and the longest back-off more.
func (h *judged) wake() {
	for _, key := range h.keys {
		for _, free := range h.free(key) {
			for _, a := range h.acquires[key] {
				if from, to := max(free.from, a.Call), min(free.to, a.Return); to > from {
					h.waited(key, a, from, to)
				}
			}
		}
	}
}

// span is a time.
type span struct{ from, to int64 }

// free returns when nobody had the key, but for times too short to matter.
func (h *judged) free(key string) []span {
	var out []span
	var since int64
	for _, c := range h.claims[key] {
		if c.Start-since > int64(h.Wake) {
			out = append(out, span{since, c.Start})
		}
		// A release that was answered ends later than the claim, by its way to the store.
		since = max(since, c.End)
		if c.Released != nil {
			since = max(since, c.Released.Return)
		}
	}
	if h.end-since > int64(h.Wake) {
		out = append(out, span{since, h.end})
	}
	return out
}

// waited judges a caller's waiting while the key was free.
func (h *judged) waited(key string, a *history.Event, from, to int64) {
	bound, why := h.Wake, ""
	settle := int64(h.Wake + h.TTL + h.Enrolment + h.Backoff)
	for _, f := range h.faults {
		if f.Call >= to || f.Return+settle <= from {
			continue
		}
		after := max(from, f.Return)
		switch {
		case f.Op == history.Kill && bound < h.Wake+h.TTL:
			bound, why = h.Wake+h.TTL, " after a process was killed"
			from = after
		case f.Op == history.Kill:
			from = after
		default:
			bound, why = h.Wake+h.TTL+h.Enrolment+h.Backoff, " after "+f.Name
			from = after
		}
	}
	if to <= from {
		return
	}
	busy := h.busy(from, to)
	h.longest("free and waited for"+map[bool]string{true: " in quiet times"}[why == ""]+why, time.Duration(to-from))
	if to-from > int64(bound+h.Slack)+2*busy {
		h.found("L1", key, from, to, "nobody had it for %s%s while process %d waited; %v are allowed, and %v more as the machine is busy",
			ms(to-from), why, a.Process, bound, h.Slack)
	}
}
