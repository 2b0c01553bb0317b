package twinlock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/twinlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	for faulty, name := range []string{"OldStoreFails", "NewStoreFails"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, faulty)
		})
	}
}

// conform runs the suite with faults of one of the two stores.
func conform(t *testing.T, faulty int) {
	drivertest.Run(t, func(*testing.T) *drivertest.Harness {
		stores := [2]*memlock.Driver{memlock.New(), memlock.New()}
		return &drivertest.Harness{
			Driver: twinlock.New(stores[0], stores[1]),
			Stall: func() (resume func()) {
				stores[faulty].Stall()
				return stores[faulty].Heal
			},
		}
	})
}
