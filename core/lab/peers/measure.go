package main

import (
	"fmt"
	"slices"
	"time"
)

// measure computes the trial's figures from its outcomes.
func (t *Trial) measure(s Scenario) {
	waits := new(Waits)
	var sections int64
	var perSecond float64
	began, ended := t.Outcomes[0].Began, t.Outcomes[0].Ended
	for _, o := range t.Outcomes {
		if o.Waits != nil {
			waits.Merge(o.Waits)
		}
		sections += o.Sections
		if o.Watched > 0 {
			perSecond += float64(o.Sections) / o.Watched.Seconds()
		}
		began, ended = min(began, o.Began), max(ended, o.Ended)
	}
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
		case "elapsed":
			v = milliseconds(time.Duration(ended - began))
		case "spread":
			v = float64(worst) / float64(max(median, 1))
		case "worst":
			v = milliseconds(worst)
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
	switch gaveUp := t.GaveUp(); {
	case t.Overlaps > 0:
		return fmt.Errorf("%d times two callers held one lock", t.Overlaps)
	case s.Finite && sections < int64(s.Processes*s.Callers):
		return fmt.Errorf("%d of %d gave up: %s", int64(s.Processes*s.Callers)-sections, s.Processes*s.Callers, t.refusal())
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
