package cache

import (
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/instruments"
)

func TestOutcomesAreThoseOfTheTable(t *testing.T) {
	for _, tc := range []struct {
		of   instruments.Instrument
		have []string
	}{
		{instruments.CacheGets, getOutcomes[:]},
		{instruments.CacheLoadDuration, loadOutcomes[:]},
	} {
		if !slices.Equal(tc.of.Outcomes(), tc.have) {
			t.Errorf("%s ends as %v, the table has %v", tc.of.Name, tc.have, tc.of.Outcomes())
		}
	}
}
