package job

import (
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/instruments"
)

func TestOutcomesAreThoseOfTheTable(t *testing.T) {
	var have []string
	for o := Ran; o <= NotRun; o++ {
		have = append(have, o.String())
	}
	if want := instruments.JobRuns.Outcomes(); !slices.Equal(want, have) {
		t.Errorf("ticks end as %v, the table has %v", have, want)
	}
	if want := instruments.JobDuration.Outcomes(); !slices.Equal(want, have[:4]) {
		t.Errorf("runs end as %v, the table has %v", have[:4], want)
	}
}
