package check

import (
	"sort"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// promptness is L3 and L5: an acquisition returns when its time is over, and a holder
// hears of its deadline when that has passed.
func (h *judged) promptness() {
	for _, key := range h.keys {
		for _, a := range h.acquires[key] {
			if a.Return <= a.Limit {
				continue
			}
			late, busy := a.Return-a.Limit, h.busyIn(a.Process, a.Limit, a.Return)
			h.longest("acquire after its limit", time.Duration(max(late-busy, 0)))
			if late > int64(h.Late+h.Slack)+2*busy {
				h.found("L3", key, a.Limit, a.Return, "process %d got its answer %s after its time was over; %v are allowed, and %v more as the machine is busy",
					a.Process, ms(late), h.Late, h.Slack)
			}
		}
		for _, c := range h.claims[key] {
			if c.Heard <= c.Deadline {
				continue
			}
			late, busy := c.Heard-c.Deadline, h.busyIn(c.Process, c.Deadline, c.Heard)
			h.longest("loss told after the deadline", time.Duration(max(late-busy, 0)))
			if late > int64(h.Late+h.Slack)+2*busy {
				h.found("L5", key, c.Deadline, c.Heard, "process %d (token %d) was told of its loss %s after its deadline; %v are allowed, and %v more as the machine is busy",
					c.Process, c.Token, ms(late), h.Late, h.Slack)
			}
		}
	}
}

// busyIn is for how much of a time a process did not get to run.
func (h *judged) busyIn(process int, from, to int64) int64 {
	var sum int64
	for _, e := range h.lateWithin(from, to) {
		if e.Process == process {
			sum += min(e.Return, to) - max(e.Call, from)
		}
	}
	return sum
}

// busy is for how much of a time one process or another did not.
func (h *judged) busy(from, to int64) int64 {
	var sum int64
	until := from
	for _, e := range h.lateWithin(from, to) {
		if e.Return > until {
			sum += min(e.Return, to) - max(e.Call, until)
			until = e.Return
		}
	}
	return sum
}

// lateWithin returns what overlaps with a time.
func (h *judged) lateWithin(from, to int64) []*history.Event {
	var out []*history.Event
	// By their calls; none lasts longer than the longest of all.
	begin := sort.Search(len(h.late), func(i int) bool {
		return h.late[i].Call >= from-int64(h.report.Figures.Overslept)
	})
	for _, e := range h.late[begin:] {
		if e.Call >= to {
			break
		}
		if e.Return > from {
			out = append(out, e)
		}
	}
	return out
}
