// Package check judges the history of a run. Each property has a check of its own, which
// needs O(n log n) steps, and knows of the lock no more than what its callers saw. The package
// draws what happened, too: see [Draw].
package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// Rules is what a history is held to. Durations that say how long something may take
// have a slack on top, for a machine that has other things to do; what is about safety
// has none.
type Rules struct {
	TTL      time.Duration // T, the largest that was asked for
	PlaceTTL time.Duration // E, for how long a waiter that has died keeps its place
	Wake     time.Duration // the longest that a waiter sleeps through a lost wake-up
	Backoff  time.Duration // the longest that a process leaves a store alone that failed
	Stuck    time.Duration // for how long a process that is stopped or cut off keeps others from a key at most that it decides on; 0 if it does not
	Entry    time.Duration // for how long such a process may keep others from taking a place; 0 if it does not
	Late     time.Duration // how much later than it had to an acquisition may return, and a loss may be told
	Slack    time.Duration // of a busy machine, besides what it owns up to
	Search   time.Duration // that Porcupine has for a piece; one that takes longer counts as failed
	Warm     int           // acquisitions that there must be before the first fault
	Start    time.Duration // for which new servers have no say
	HandOffs int64         // callers in turn that share one grant of the store, with tokens next to each other
}

// With returns the rules with the times of a store: T, E, the bound of a wake-up and the
// longest back-off.
func (r Rules) With(ttl, placeTTL, wake, backoff time.Duration) Rules {
	r.TTL, r.PlaceTTL, r.Wake, r.Backoff = ttl, placeTTL, wake, backoff
	return r
}

// From returns the rules for servers that have no say at first, for that long.
func (r Rules) From(start time.Duration) Rules {
	r.Start = start
	return r
}

// WithStuck returns the rules with the time for which a decision that hangs keeps a key.
func (r Rules) WithStuck(d time.Duration) Rules {
	r.Stuck = d
	return r
}

// WithEntry returns the rules with the time for which it keeps others from taking a place.
func (r Rules) WithEntry(d time.Duration) Rules {
	r.Entry = d
	return r
}

// Violation is a property that does not hold.
type Violation struct {
	Property string // S1 to S3, L1 to L5, "keep", "turn", "linear", "work", "history"
	Key      string // empty if it is not about one
	From, To int64  // when, by the history's clock
	Text     string
}

// String is one line, with times since the history's beginning left out.
func (v Violation) String() string {
	if v.Key == "" {
		return v.Property + ": " + v.Text
	}
	return v.Property + ", " + v.Key + ": " + v.Text
}

// Report is what came out.
type Report struct {
	Violations []Violation
	Doubles    []Double
	Figures    Figures
}

// Double is when two had a lock at once because the store had lost the first one's lease.
type Double struct {
	Key, Fault string
	From, To   int64
}

// Figures are what was seen on the way.
type Figures struct {
	Acquired    int            // acquisitions that got the lock
	Refused     int            // those that did not
	HandOffs    int            // of the former, those that the store did not take part in
	Accepted    int            // increments
	Stale       int            // reads and writes that the guard refused
	StaleWrites int            // of these, the writes
	Ended       int            // holds that ended by a loss
	Admitted    int            // stale requests that it let in
	Beside      int            // pairs of claims that overlapped as their modes allow
	Several     int            // acquisitions of several keys at once, by key
	InTurn      int            // acquisitions that waited for long enough for others to pass them, where none may
	Kept        int            // releases after which the key had to stay taken for a while
	Faults      map[string]int // by name
	Lost        map[string]int // by fault: how often two had a lock at once as the store had lost the first one's lease
	Longest     map[string]time.Duration
	Linear      int // operations that were judged by Porcupine as well
	Pieces      int // in so many pieces
	Overslept   time.Duration
}

// Twice is how often two had a lock at once because the store had lost data.
func (f Figures) Twice() int {
	n := 0
	for _, times := range f.Lost {
		n += times
	}
	return n
}

// All holds a history to all properties.
func All(events []history.Event, r Rules) Report {
	h := index(events, r)
	h.work()
	return h.judge()
}

// Soon is All for a history that goes on: it may not have come to any work yet.
func Soon(events []history.Event, r Rules) Report { return index(events, r).judge() }

func (h *judged) judge() Report {
	h.count()
	h.exclusion()
	h.keep()
	h.turn()
	h.tokens()
	h.guard()
	h.promptness()
	h.wake()
	h.silence()
	h.linearity()
	slices.SortStableFunc(h.report.Violations, func(a, b Violation) int { return cmp.Compare(a.From, b.From) })
	return h.report
}

// judged is a history in the making of its report.
type judged struct {
	Rules
	report   Report
	keys     []string
	acquires map[string][]*history.Event // by key, in the order of calls
	claims   map[string][]*Claim         // by key, in the order of their starts
	guarded  map[string][]*history.Event // by key, in the order of effect
	reads    map[reader][]*history.Event // of holders who are not exclusive, the same
	driver   []*history.Event
	faults   []*history.Event // and kills, in the order of calls
	slow     []*history.Event // what the store took long to answer, without a fault that explains it
	late     []*history.Event
	first    int64 // fault; 0 if there was none
	began    int64
	end      int64
}

func index(events []history.Event, r Rules) *judged {
	h := &judged{
		Rules: r, acquires: map[string][]*history.Event{}, claims: map[string][]*Claim{}, guarded: map[string][]*history.Event{},
		reads: map[reader][]*history.Event{},
	}
	h.report.Figures.Faults, h.report.Figures.Lost, h.report.Figures.Longest = map[string]int{}, map[string]int{}, map[string]time.Duration{}
	for i := range events {
		e := &events[i]
		h.end = max(h.end, e.Call, e.Return)
		if h.began == 0 || e.Call < h.began {
			h.began = e.Call
		}
		switch e.Op {
		case history.Acquire:
			h.acquires[e.Key] = append(h.acquires[e.Key], e)
		case history.Read, history.Write:
			h.guarded[e.Key] = append(h.guarded[e.Key], e)
			if e.Mode != "" {
				who := reader{e.Process, e.Client, e.Key, e.Token}
				h.reads[who] = append(h.reads[who], e)
			}
		case history.Grant, history.Renew, history.End:
			h.driver = append(h.driver, e)
		case history.Fault, history.Kill:
			h.faults = append(h.faults, e)
		case history.Late:
			h.late = append(h.late, e)
			h.report.Figures.Overslept = max(h.report.Figures.Overslept, time.Duration(e.Return-e.Call))
		}
	}
	byCall := func(a, b *history.Event) int { return cmp.Compare(a.Call, b.Call) }
	slices.SortStableFunc(h.faults, byCall)
	slices.SortStableFunc(h.late, byCall)
	for _, f := range h.faults {
		if f.Op == history.Fault {
			h.report.Figures.Faults[f.Name]++
		}
	}
	for _, e := range h.driver {
		if e.Return-e.Call > int64(h.Slack) && !slices.ContainsFunc(h.faults, func(f *history.Event) bool {
			return f.Call <= e.Return && e.Call <= f.Return
		}) {
			h.slow = append(h.slow, e)
		}
	}
	if len(h.faults) > 0 {
		h.first = h.faults[0].Call
	}
	for key, acquires := range h.acquires {
		h.keys = append(h.keys, key)
		slices.SortStableFunc(acquires, byCall)
	}
	slices.Sort(h.keys)
	h.claim(events)
	return h
}

func (h *judged) found(property, key string, from, to int64, format string, a ...any) {
	h.report.Violations = append(h.report.Violations, Violation{property, key, from, to, fmt.Sprintf(format, a...)})
}

// longest keeps the largest of a kind of time.
func (h *judged) longest(what string, d time.Duration) {
	h.report.Figures.Longest[what] = max(h.report.Figures.Longest[what], d)
}

// count counts acquisitions.
func (h *judged) count() {
	f := &h.report.Figures
	for _, key := range h.keys {
		for _, a := range h.acquires[key] {
			switch {
			case !a.OK():
				f.Refused++
				continue
			case a.Token%h.HandOffs != 0:
				f.HandOffs++
			}
			f.Acquired++
			if a.Among > 1 {
				f.Several++
			}
		}
	}
}

// work finds a run that proves nothing: faults that came before there was much for them
// to hit, and nothing that got done after them.
func (h *judged) work() {
	before, after := 0, 0
	var last int64
	for _, f := range h.faults {
		last = max(last, f.Return)
	}
	for _, claims := range h.claims {
		for _, c := range claims {
			if h.first == 0 || c.Start < h.first {
				before++
			}
			if c.Called > last {
				after++
			}
		}
	}
	if before < h.Warm {
		h.found("work", "", 0, h.first, "%d acquisitions before the first fault; at least %d are needed for the faults to hit something", before, h.Warm)
	}
	if h.first != 0 && after == 0 {
		h.found("work", "", last, h.end, "nobody acquired anything after the last fault")
	}
}

// ms is a time of the history for people, since its beginning being unknown to them a
// difference.
func ms(d int64) string { return fmt.Sprintf("%.1f ms", float64(d)/1e6) }
