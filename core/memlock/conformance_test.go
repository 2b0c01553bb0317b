package memlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestConformance(t *testing.T) {
	drivertest.Run(t, func(*testing.T) *drivertest.Harness {
		d := memlock.New()
		return &drivertest.Harness{
			Driver: d,
			Stall: func() (resume func()) {
				d.Stall()
				return d.Heal
			},
		}
	})
}
