package main

import (
	"fmt"

	"github.com/lockaround/lockaround/core/lab/faults/mutant"
)

// told is what the runs tell command figures of, as go test -v prints a test's attributes.
func (r results) told() (lines []string) {
	if h := r.Healthy; h != nil {
		n := 0
		for _, times := range h.Figures.Faults {
			n += times
		}
		lines = append(lines, fmt.Sprintf("=== ATTR  faults figure-2 %d faults of %d kinds in %v hit %d processes; %d acquisitions, %d increments accepted, each of them in the counters; %d stale requests refused; %d violations of any promise",
			n, len(h.Figures.Faults), h.Took.Round(1e9), processes, h.Figures.Acquired, h.Figures.Accepted, h.Figures.Stale, len(h.Violations)))
	}
	found := 0
	for _, run := range r.Mutants {
		if m, known := mutant.Named(run.Mutant); known && caught(m, run) {
			found++
		}
	}
	if len(r.Mutants) > 0 {
		lines = append(lines, fmt.Sprintf("=== ATTR  faults figure-6 %d of %d bugs caught by the laboratory", found, len(r.Mutants)))
	}
	return lines
}
