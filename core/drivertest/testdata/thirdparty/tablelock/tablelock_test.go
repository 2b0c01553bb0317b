package tablelock_test

import (
	"testing"

	"example.com/thirdparty/tablelock"
	"github.com/lockaround/lockaround/core/drivertest"
)

func TestTableKeepsTheContract(t *testing.T) {
	drivertest.Run(t, func(*testing.T) *drivertest.Harness {
		return &drivertest.Harness{Driver: tablelock.New()}
	})
}
