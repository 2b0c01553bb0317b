package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// Claim is the time for which a caller may rely on having the lock: from the return of its
// acquisition to the first of its call of the release, the word that the lease is lost,
// the lease's deadline, and the end of its process.
type Claim struct {
	Process, Client int
	Key             string
	Token           int64
	Mode            string // of the history
	Room            int
	Keep            int64
	Lease           Lease
	Called          int64 // the acquisition was
	Start, End      int64
	Deadline        int64
	Heard           int64 // that the lease was lost; 0 if never
	Released        *history.Event
	Killed          bool
}

// Claims returns the claims of a key, in the order of their starts.
func Claims(events []history.Event, key string, r Rules) []*Claim {
	return index(events, r).claims[key]
}

// Exclusive reports whether nobody may claim the key beside it.
func (c *Claim) Exclusive() bool { return c.Mode == "" }

// Lease names what the store has granted once, from which callers of one process may have
// had several claims.
type Lease struct {
	Process int
	Key     string
	Grant   int64
}

// holder is who claims, and by which acquisition.
type holder struct {
	process, client int
	key             string
}

// claim makes the claims.
func (h *judged) claim(events []history.Event) {
	killed := map[int]int64{}
	for _, f := range h.faults {
		if f.Op == history.Kill {
			killed[f.Process] = f.Call
		}
	}
	renewed := h.renewed()
	open := map[holder]*Claim{}
	for i := range events { // those of a client are in its own order
		e := &events[i]
		who := holder{e.Process, e.Client, e.Key}
		switch c := open[who]; e.Op {
		case history.Acquire:
			if !e.OK() {
				continue
			}
			c := &Claim{
				Process: e.Process, Client: e.Client, Key: e.Key, Token: e.Token, Mode: e.Mode, Room: e.Room, Keep: e.Keep, Lease: Lease{e.Process, e.Key, e.Token / h.HandOffs},
				Called: e.Call, Start: e.Return, End: h.end, Deadline: e.Deadline,
			}
			if c.Client == 0 || e.Return == 0 || e.Deadline == 0 {
				h.found("history", e.Key, e.Call, e.Return, "an acquisition lacks its client, its return or its deadline")
			}
			open[who] = c
			h.claims[e.Key] = append(h.claims[e.Key], c)
		case history.Lost, history.Release, history.Released:
			if c == nil || c.Token != e.Token {
				h.found("history", e.Key, e.Call, e.Call, "process %d ends a claim (token %d) that it did not begin", e.Process, e.Token)
				continue
			}
			switch e.Op {
			case history.Lost:
				c.Heard = e.Call
				h.report.Figures.Ended++
				fallthrough
			case history.Release:
				c.End, c.Deadline = min(c.End, e.Call), max(c.Deadline, e.Deadline)
			case history.Released:
				c.Released = e
			}
		}
	}
	for _, claims := range h.claims {
		slices.SortStableFunc(claims, func(a, b *Claim) int { return cmp.Compare(a.Start, b.Start) })
		for i, c := range claims {
			if at, ok := killed[c.Process]; ok && at < c.End {
				c.End, c.Killed = at, true
				h.succeeded(claims[i+1:], at)
			}
			if c.End == h.end || c.Killed { // it said nothing of its last deadline
				c.Deadline = max(c.Deadline, renewed.before(c.Lease, c.End))
			}
			c.End = min(c.End, c.Deadline)
		}
	}
}

// succeeded notes when a key whose holder was killed got the next one.
func (h *judged) succeeded(later []*Claim, killed int64) {
	if len(later) > 0 {
		h.longest("next grant after the holder was killed", time.Duration(later[0].Start-killed))
	}
}

// renewals are the deadlines that renewals have brought, by lease, in the order of
// their returns.
type renewals map[Lease][]*history.Event

func (h *judged) renewed() renewals {
	out := renewals{}
	for _, e := range h.driver {
		if e.Op == history.Renew && e.OK() {
			lease := Lease{e.Process, e.Key, e.Token}
			out[lease] = append(out[lease], e)
		}
	}
	return out
}

// before returns the largest deadline that a lease had got by then.
func (r renewals) before(l Lease, end int64) int64 {
	var d int64
	for _, e := range r[l] {
		if e.Return <= end {
			d = max(d, e.Deadline)
		}
	}
	return d
}
