package leader

import (
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/instruments"
)

func TestOutcomesAreThoseOfTheTable(t *testing.T) {
	have := []string{string(done), string(failed), string(resigned), string(lost)}
	if want := instruments.LeaderTerms.Outcomes(); !slices.Equal(want, have) {
		t.Errorf("terms end as %v, the table has %v", have, want)
	}
}
