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
	t.Run("OldStoreFails", func(t *testing.T) { conform(t, 0) })
	t.Run("NewStoreFails", func(t *testing.T) { conform(t, 1) })
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
