package memlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/endurance"
	"github.com/lockaround/lockaround/core/memlock"
)

func harness(*testing.T) *drivertest.Harness {
	d := memlock.New()
	return &drivertest.Harness{
		Driver: d,
		Stall: func() (resume func()) {
			d.Stall()
			return d.Heal
		},
	}
}

func TestConformance(t *testing.T) { drivertest.Run(t, harness) }

func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	endurance.Run(t, harness)
}
