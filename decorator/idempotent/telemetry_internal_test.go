package idempotent

import (
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/instruments"
)

func TestOutcomesAreThoseOfTheTable(t *testing.T) {
	if have, want := outcomes[:], instruments.IdempotentCalls.Outcomes(); !slices.Equal(have, want) {
		t.Errorf("calls end as %v, the table has %v", have, want)
	}
}
