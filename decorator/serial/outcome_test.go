package serial

import (
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/instruments"
	"github.com/lockaround/lockaround/decorator/queue"
)

func TestOutcomesAreThoseOfTheTable(t *testing.T) {
	runs := []string{queue.Done.String(), queue.Retry.String(), queue.Dead.String(), superseded, unrecorded}
	for _, of := range []instruments.Instrument{instruments.QueueRuns, instruments.QueueRunDuration} {
		if !slices.Equal(of.Outcomes(), runs) {
			t.Errorf("%s ends as %v, the table has %v", of.Name, runs, of.Outcomes())
		}
	}
}
