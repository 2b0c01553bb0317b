package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// crashing is where holders are killed.
var crashing = suites.Crash{
	Open: func(addr string) (driver.Driver, func() error, error) {
		client := redis.NewClient(&redis.Options{Addr: addr})
		return redislock.New(client), client.Close, nil
	},
	TTL: time.Second, After: redislock.New(nil).Capabilities().Wake,
}

// TestKilledHolderIsSucceededWithinTTLPlusWake kills -9 processes that hold a lock, while
// another waits.
func TestKilledHolderIsSucceededWithinTTLPlusWake(t *testing.T) {
	t.Parallel()
	crashing.Run(t, testservers.Redis(t).Addr(), 5)
}

func TestKilledHolderOfSeveralKeysFreesAllWithinTTL(t *testing.T) {
	t.Parallel()
	crashing.RunSeveral(t, testservers.Redis(t).Addr(), 3)
}
