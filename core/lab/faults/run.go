package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// plan says what a run is to be.
type plan struct {
	Store    store
	Seed     uint64
	Faults   []fault       // none is a run without any
	Time     time.Duration // that there are faults for, at least
	Rounds   int           // of all faults, at least
	Mutant   string        // empty for lockaround as it is
	Long     int           // how many critical sections in a hundred need renewals
	Until    []string      // properties; it ends as soon as one of them is found broken
	Progress func(format string, a ...any)
}

// Run is what a run came to.
type Run struct {
	Store  store
	Seed   uint64
	Mutant string
	Took   time.Duration // of faults
	Events []history.Event
	check.Report
}

// run plays the plan. The error is that it could not be played: what the locks did is in
// the report.
func (p plan) run(ctx context.Context) (result *Run, err error) {
	w, err := newWorld(ctx, p.Store, p.Mutant, p.Seed, p.Long)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for at := range processes {
		if err := w.staff(at); err != nil {
			return nil, err
		}
	}
	if len(p.Faults) > 0 {
		if err := w.warm(ctx); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	end, err := p.trouble(ctx, w, began)
	took := time.Since(began)
	if err != nil || end != nil {
		return end, err
	}
	if err := errors.Join(w.mend(ctx), w.recover(ctx)); err != nil {
		return nil, err
	}
	if err := w.finish(ctx); err != nil {
		return nil, err
	}
	events, err := history.Load(w.folder)
	if err != nil {
		return nil, err
	}
	return &Run{p.Store, p.Seed, p.Mutant, took, events, check.All(events, p.Store.Rules)}, nil
}

// warm returns when the workers have done enough for faults to hit something.
func (w *world) warm(ctx context.Context) error {
	const patience = 3 * time.Minute
	began := time.Now()
	for w.resource.Writes() < 2*rules.Warm {
		if err := errors.Join(w.fallen(), pass(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
		if time.Since(began) > patience {
			return fmt.Errorf("%d increments in %v; %d are needed before the first fault", w.resource.Writes(), patience, 2*rules.Warm)
		}
	}
	return nil
}

// recover gives what was broken last its time: that of the longest section, and more until
// callers have come and gone again, but no longer than a busy machine makes of that.
func (w *world) recover(ctx context.Context) error {
	const patience = time.Minute
	turn := w.resource.Writes() + processes*clients
	for began := time.Now(); ; {
		if err := pass(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		took := time.Since(began)
		if took > longestSection(w.store) && w.resource.Writes() > turn || took > patience {
			return nil
		}
	}
}

// trouble makes one fault after the other. It returns what has happened if the plan
// is to end then.
func (p plan) trouble(ctx context.Context, w *world, began time.Time) (*Run, error) {
	s := newSchedule(p.Faults, p.Seed)
	for s.made < p.Rounds*len(p.Faults) || time.Since(began) < p.Time {
		if err := p.next(ctx, w, s, began); err != nil {
			return nil, err
		}
		if err := w.fallen(); err != nil {
			return nil, err
		}
		if len(p.Until) == 0 {
			continue
		}
		now := history.Now()
		events, err := history.Load(w.folder)
		if err != nil {
			return nil, err
		}
		events = history.Until(events, now)
		if report := check.Soon(events, p.Store.Rules); broken(report, p.Until) {
			return &Run{p.Store, p.Seed, p.Mutant, time.Since(began), events, report}, nil
		}
	}
	return nil, nil
}

// next makes a fault, or two at a time, or lets some time pass if there are none.
func (p plan) next(ctx context.Context, w *world, s *schedule, began time.Time) error {
	if len(p.Faults) == 0 {
		return pass(ctx, 300*time.Millisecond)
	}
	together, gap := s.next()
	if err := errors.Join(w.mend(ctx), pass(ctx, gap)); err != nil {
		return err
	}
	at, err := w.holder(ctx)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	errs := make([]error, len(together))
	process := w.workers[at].job.Process
	for i, f := range together {
		all.Go(func() { errs[i] = p.make(ctx, w, f, at, process, began) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// make makes one fault, about the process at that place if it is about one.
func (p plan) make(ctx context.Context, w *world, f fault, at, process int, began time.Time) error {
	e := history.Event{Op: history.Fault, Name: f.Name, Lossy: p.Store.loses(f), Outage: f.Reach == holder || f.Reach == all, Call: history.Now()}
	if f.aimed() {
		e.Process = process
	}
	err := f.make(ctx, w, at)
	e.Return = history.Now()
	w.log.Add(e)
	p.Progress("%6.1f s  %-15s %4.0f ms, %d increments", time.Since(began).Seconds(), f.Name, float64(e.Return-e.Call)/1e6, w.resource.Writes())
	if err != nil {
		return fmt.Errorf("%s: %w", f.Name, err)
	}
	return nil
}

// broken reports whether one of the properties is.
func broken(r check.Report, properties []string) bool {
	return slices.ContainsFunc(r.Violations, func(v check.Violation) bool { return slices.Contains(properties, v.Property) })
}
