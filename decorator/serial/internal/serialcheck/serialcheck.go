// Package serialcheck judges what the processes of a serial function have written down: that
// nothing was lost, run out of order, side by side, too close or without being counted.
package serialcheck

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// Event is a line of a history. Times are those of one machine's clock.
type Event struct {
	At      int64  `json:"at"` // in nanoseconds
	From    int64  `json:"from,omitempty"`
	Kind    Kind   `json:"kind"` // which of the fields below it has
	Process string `json:"process,omitempty"`
	Key     string `json:"key,omitempty"`
	Seq     int64  `json:"seq,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
	Token   int64  `json:"token,omitempty"`
}

// Kind is what an event says.
type Kind string

// The kinds.
const (
	Accepted Kind = "accepted" // an append of Key was answered, with Seq
	Started  Kind = "started"  // Process runs Seq of Key
	Effect   Kind = "effect"   // its effect has happened
	Returned Kind = "returned" // the run has returned
	Killed   Kind = "killed"   // Process was killed between From and At, and runs no more
	Paused   Kind = "paused"   // Process was stopped from From to At, for longer than a lease
	Lost     Kind = "lost"     // Process has lost a lease of Key between From and At
	Dead     Kind = "dead"     // Seq of Key was given up
)

// Report is what a history has shown.
type Report struct {
	Accepted, Runs, Effects int
	Duplicates              int // effects of items that had one before, each after a death or a pause
	Stale                   int // runs without an effect that began after a pause in which their lease had ended
	Closest                 time.Duration
	Faults                  []string // what must not be; at most a hundred
}

// Err is an error if anything was wrong.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	var errs []error
	for _, f := range r.Faults[:min(len(r.Faults), 10)] {
		errs = append(errs, errors.New(f))
	}
	return fmt.Errorf("%d faults: %w", len(r.Faults), errors.Join(errs...))
}

func (r *Report) fault(format string, args ...any) {
	if len(r.Faults) < 100 {
		r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
	}
}

// Read reads the events of a file, whose last line may be a part of one.
func Read(from io.Reader) (all []Event, err error) {
	lines := json.NewDecoder(from)
	for {
		var e Event
		switch err := lines.Decode(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return all, nil
		case err != nil:
			return nil, err
		}
		all = append(all, e)
	}
}

// run is one run of an item.
type run struct {
	Event
	effect, until int64 // 0: none
}

// Check judges a whole history, in which every item has ended. spacing is the least time
// between two starts of a key.
func Check(events []Event, spacing time.Duration) *Report {
	r := &Report{Closest: -1}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	ends := make(map[string][]Event) // when processes were killed or paused, or lost a lease
	accepted := make(map[string]map[int64]bool)
	given := make(map[string]map[int64]bool)
	runs := make(map[string][]*run)
	type name struct {
		key, process string
		seq          int64
		attempt      int
	}
	open := make(map[name]*run)
	for _, e := range events {
		n := name{e.Key, e.Process, e.Seq, e.Attempt}
		switch e.Kind {
		case Killed, Paused, Lost:
			ends[e.Process] = append(ends[e.Process], e)
		case Accepted:
			put(accepted, e)
			r.Accepted++
		case Dead:
			put(given, e)
		case Started:
			open[n] = &run{Event: e}
			runs[e.Key] = append(runs[e.Key], open[n])
			r.Runs++
		case Effect, Returned:
			o := open[n]
			if o == nil {
				r.fault("%s: item %d has an effect of a run that has not started", e.Key, e.Seq)
				continue
			}
			if o.until = e.At; e.Kind == Effect {
				o.effect = e.At
				r.Effects++
			}
		}
	}
	for key, all := range runs {
		r.key(key, all, ends, accepted[key], given[key], spacing)
	}
	for key, items := range accepted {
		for seq := range items {
			if !given[key][seq] && !slices.ContainsFunc(runs[key], func(o *run) bool { return o.Seq == seq && o.effect > 0 }) {
				r.fault("%s: item %d was accepted, and has no effect", key, seq)
			}
		}
	}
	return r
}

func put(m map[string]map[int64]bool, e Event) {
	if m[e.Key] == nil {
		m[e.Key] = make(map[int64]bool)
	}
	m[e.Key][e.Seq] = true
}

// key judges the runs of one key, in the order of their starts.
func (r *Report) key(key string, all []*run, ends map[string][]Event, accepted, dead map[int64]bool, spacing time.Duration) {
	first := make(map[int64]*run) // that had an effect, by item
	var before *run
	for _, o := range all {
		if accepted != nil && !accepted[o.Seq] {
			r.fault("%s: item %d runs, and was never accepted", key, o.Seq)
		}
		if dead[o.Seq] && o.effect > 0 {
			r.fault("%s: item %d is dead and has an effect", key, o.Seq)
		}
		if before != nil && o.Token < before.Token && o.effect == 0 && stopped(ends[o.Process], o) {
			r.Stale++ // it was granted before the pause, and could not know
			continue
		}
		if before != nil {
			r.pair(key, before, o, ends, spacing)
		}
		before = o
		if o.effect == 0 {
			continue
		}
		earlier := first[o.Seq]
		if earlier == nil {
			first[o.Seq] = o
			continue
		}
		r.Duplicates++
		if !ended(ends[earlier.Process], earlier.effect, o) {
			r.fault("%s: item %d has two effects, and %s was neither killed nor paused after the first, nor lost its lease", key, o.Seq, earlier.Process)
		}
	}
	// No item is passed over: first effects come in the order of the items.
	var latest *run
	for _, seq := range slices.Sorted(maps.Keys(accepted)) {
		o := first[seq]
		if o == nil {
			continue
		}
		if latest != nil && o.effect < latest.effect {
			r.fault("%s: item %d is done after item %d", key, seq, latest.Seq)
		}
		latest = o
	}
}

// pair judges a run and the one before it.
func (r *Report) pair(key string, before, o *run, ends map[string][]Event, spacing time.Duration) {
	if gap := time.Duration(o.At - before.At); r.Closest < 0 || gap < r.Closest {
		r.Closest = gap
	}
	switch {
	case o.At-before.At < int64(spacing):
		r.fault("%s: item %d starts %v after item %d; want %v", key, o.Seq, time.Duration(o.At-before.At), before.Seq, spacing)
	case o.Seq < before.Seq:
		r.fault("%s: item %d starts after item %d", key, o.Seq, before.Seq)
	case o.Seq == before.Seq && o.Attempt <= before.Attempt:
		r.fault("%s: attempt %d of item %d comes after attempt %d", key, o.Attempt, o.Seq, before.Attempt)
	case o.Token < before.Token:
		r.fault("%s: item %d runs with token %d after %d", key, o.Seq, o.Token, before.Token)
	}
	if before.effect > o.At {
		r.fault("%s: item %d has its effect after item %d has started", key, before.Seq, o.Seq)
	}
	// A run of a process that was killed or paused is over then: it has no effect any
	// more, which was checked just now.
	if !ended(ends[before.Process], before.At, o) && (before.until == 0 || before.until > o.At) {
		r.fault("%s: item %d starts while item %d runs", key, o.Seq, before.Seq)
	}
}

// ended reports whether a process was killed or paused, or lost the lease, between a moment and
// the start of the next run.
func ended(ends []Event, since int64, next *run) bool {
	return slices.ContainsFunc(ends, func(e Event) bool {
		return e.At > since && e.From < next.At && (e.Kind != Lost || e.Key == next.Key)
	})
}

// stopped reports whether a process was stopped, or lost the lease, until just before a run began.
func stopped(ends []Event, o *run) bool {
	return slices.ContainsFunc(ends, func(e Event) bool {
		return e.Kind != Killed && e.From <= o.At && e.At > o.At-int64(time.Second) && (e.Kind != Lost || e.Key == o.Key)
	})
}
