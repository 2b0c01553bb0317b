package memlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestCrowdIsLetInOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	d := memlock.New()
	suites.Crowd(t, 5000, false, func(testing.TB) driver.Driver { return d })
}
