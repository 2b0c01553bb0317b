package signals

import (
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/instruments"
)

func TestOutcomesAreThoseOfTheTable(t *testing.T) {
	var have, told []string
	for o := Acquired; o <= Failed; o++ {
		have = append(have, o.String())
	}
	told = append(instruments.WaitDuration.Outcomes(), instruments.HoldDuration.Outcomes()...)
	slices.Sort(have)
	slices.Sort(told)
	if told = slices.Compact(told); !slices.Equal(have, told) {
		t.Errorf("there are %v, the table has %v", have, told)
	}
}
