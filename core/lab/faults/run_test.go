package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/mutant"
)

// TestPromisesHoldUnderFaults is the laboratory's short form: one fault of each kind.
func TestPromisesHoldUnderFaults(t *testing.T) {
	needRedis(t)
	t.Parallel()
	const seed = 5
	r, err := plan{Seed: seed, Faults: faults, Rounds: 1, Progress: t.Logf}.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Violations {
		t.Error(v)
	}
	t.Logf("%+v", r.Figures)
	for _, f := range faults {
		if r.Figures.Faults[f.Name] != 1 {
			t.Errorf("%s came %d times, want once", f.Name, r.Figures.Faults[f.Name])
		}
	}
	switch f := r.Figures; {
	case f.HandOffs == 0:
		t.Error("no process handed a lock on to its own caller")
	case f.Ended == 0:
		t.Error("no holder heard of a loss: nothing was hit in the middle")
	case f.Pieces == 0:
		t.Error("Porcupine was not asked")
	}
}

func TestMutantsAreCaught(t *testing.T) {
	needRedis(t)
	t.Parallel()
	for _, m := range mutant.All {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			p, err := planOf(m, "")
			if err != nil {
				t.Fatal(err)
			}
			p.Seed, p.Progress = 1, t.Logf
			r, err := p.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !caught(m, r) {
				t.Errorf("%s: nothing of %v was found broken in %v: %v", m.Bug, m.Breaks, r.Took, r.Violations)
			}
		})
	}
}

func TestInterruptedRunLeavesNothing(t *testing.T) {
	needRedis(t)
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	f, err := chosen("pause")
	if err != nil {
		t.Fatal(err)
	}
	p := plan{Seed: 1, Faults: f, Time: time.Hour, Progress: func(string, ...any) { interrupt() }}
	if _, err := p.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("run: %v; want %v", err, context.Canceled)
	}
}
