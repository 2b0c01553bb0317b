package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// measure computes the trial's figures from its outcomes.
func (t *Trial) measure(s Scenario, p Peer) {
	waits := new(measure.Waits)
	var sections int64
	var perSecond float64
	var leases Weight
	var store *server.Load
	var ideal, used time.Duration
	var calls Calls
	for _, o := range t.Outcomes {
		if o.Waits != nil {
			waits.Merge(o.Waits)
		}
		sections += o.Sections
		if o.Watched > 0 {
			perSecond += float64(o.Sections) / o.Watched.Seconds()
		}
		leases.Heap += o.Leases.Heap
		leases.Stacks += o.Leases.Stacks
		leases.Goroutines += o.Leases.Goroutines
		ideal = max(ideal, o.Ideal)
		used += o.Used
		calls = o.Calls
		if o.Store != nil {
			store = o.Store
		}
	}
	from, to := t.counted()
	if s.Processes > 1 && sections > 0 {
		for _, o := range t.Outcomes {
			t.Shares = append(t.Shares, 100*float64(o.Sections)/float64(sections))
		}
		slices.SortFunc(t.Shares, func(a, b float64) int { return int(b*1e6 - a*1e6) })
	}
	median, worst := waits.Quantile(0.5), waits.Worst()
	trip := float64(2 * s.Delay)
	t.Measures = map[string]float64{}
	for _, m := range s.Metrics {
		var v float64
		switch m.Name {
		case "rate":
			v = perSecond
		case "least-share":
			v = slices.Min(append(t.Shares, 100))
		case "median":
			v = float64(median) / trip
		case "p99":
			v = float64(waits.Quantile(0.99)) / trip
		case "take", "wait":
			v = micros(median)
		case "take-p99":
			v = micros(waits.Quantile(0.99))
		case "processor":
			v = micros(used) / float64(max(sections, 1))
		case "elapsed":
			v = milliseconds(to.Sub(from))
		case "ideal":
			v = milliseconds(ideal)
		case "excess":
			v = float64(to.Sub(from)) / float64(time.Duration(s.Processes*s.Callers)*s.Body)
		case "trip":
			v = float64(t.Trip) / trip
		case "spread":
			v = float64(worst) / float64(max(median, 1))
		case "worst":
			v = milliseconds(worst)
		case "stall":
			v = milliseconds(t.Stall)
		case "heap":
			v = float64(leases.Heap) / float64(max(sections, 1))
		case "stacks":
			v = float64(leases.Stacks) / float64(max(sections, 1))
		case "goroutines":
			v = float64(leases.Goroutines) / float64(max(sections, 1))
		case "with":
			v = micros(calls.With)
		case "added":
			v = micros(calls.With - calls.Without)
		case "allocs":
			v = calls.Allocs
		case "requests", "server":
			if store == nil || store.Requests < 0 && m.Name == "requests" {
				continue // it was not read
			}
			v = float64(store.Requests)
			if m.Name == "server" {
				v = micros(store.Processor)
			}
			v /= float64(max(sections, 1))
		case "commands":
			v = float64(t.Commands) / to.Sub(from).Seconds()
		case "renewal":
			renewals := p.Renewals * float64(to.Sub(from)) / float64(s.TTL) * float64(sections)
			v = float64(t.Commands) / max(renewals, 1)
		}
		t.Measures[m.Name] = v
	}
}

// verdict says why the measures do not count, if they don't.
func (t *Trial) verdict(s Scenario) error {
	var sections int64
	for _, o := range t.Outcomes {
		sections += o.Sections
		if o.Unlocks > 0 {
			return fmt.Errorf("%d unlocks failed: %s", o.Unlocks, o.Unlocked)
		}
	}
	stalled := slices.MinFunc(t.Outcomes, func(a, b *Outcome) int { return int(a.Stalled - b.Stalled) })
	var stuck int64
	for _, o := range t.Outcomes {
		stuck += o.Stuck
	}
	switch gaveUp := t.GaveUp(); {
	case t.Overlaps > 0:
		return fmt.Errorf("%d times two callers held one lock", t.Overlaps)
	case s.Finite && sections < int64(s.Processes*s.Callers):
		return fmt.Errorf("%d of %d gave up: %s", int64(s.Processes*s.Callers)-sections, s.Processes*s.Callers, t.refusal())
	case stuck > 0:
		return fmt.Errorf("it hung: %d of %d callers did not come back when their time was over; %d critical sections before",
			stuck, s.Processes*s.Callers, sections)
	case stalled.Stalled > 0:
		return fmt.Errorf("it hung: %d critical sections, none in the last %v of %v", sections,
			stalled.Stalled.Round(10*time.Millisecond), stalled.Watched.Round(10*time.Millisecond))
	case sections == 0:
		return fmt.Errorf("no critical section at all; %d calls to lock failed: %s", gaveUp, t.refusal())
	}
	return nil
}

func (t *Trial) refusal() string {
	for _, o := range t.Outcomes {
		if o.Refusal != "" {
			return o.Refusal
		}
	}
	return ""
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
