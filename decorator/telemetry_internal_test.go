package decorator

import (
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/instruments"
	"github.com/lockaround/lockaround/decorator/queue"
)

func TestOutcomesAreThoseOfTheTable(t *testing.T) {
	runs := []string{queue.Done.String(), queue.Retry.String(), queue.Dead.String(), runSuperseded, runUnrecorded}
	for _, tc := range []struct {
		of   instruments.Instrument
		have []string
	}{
		{instruments.CacheGets, getOutcomes[:]},
		{instruments.CacheLoadDuration, loadOutcomes[:]},
		{instruments.QueueRuns, runs},
		{instruments.QueueRunDuration, runs},
	} {
		if !slices.Equal(tc.of.Outcomes(), tc.have) {
			t.Errorf("%s ends as %v, the table has %v", tc.of.Name, tc.have, tc.of.Outcomes())
		}
	}
}
