package zklock_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/zklock"
)

// crashing is where holders are killed.
var crashing = suites.Crash{
	Open: func(addr string) (driver.Driver, func() error, error) {
		return zklock.New([]string{addr}), func() error { return nil }, nil
	},
	TTL: time.Second, After: zklock.New(nil).Capabilities().Wake,
}

// TestKilledHolderIsSucceededWithinTTLPlusWake kills -9 processes that hold a lock, while
// another waits.
func TestKilledHolderIsSucceededWithinTTLPlusWake(t *testing.T) {
	t.Parallel()
	crashing.Run(t, zktest.Start(t, warm).Addr(), 2)
}

func TestCrowdIsLetInOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	t.Parallel()
	server := zktest.Start(t, warm)
	suites.Crowd(t, 500, false, func(testing.TB) driver.Driver { return zklock.New([]string{server.Addr()}) })
}
