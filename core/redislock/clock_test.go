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

func TestTokensRiseThoughTheServersClockJumpsByAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a clock, and restarts servers")
	}
	server := testservers.RedisWithClock(t)
	addr := server.Addr()
	asks := newClient(t, redis.Options{Addr: addr})
	suites.Jumps(t, 2, suites.Clocked{
		Server: server,
		Now:    func() time.Time { return asks.Time(t.Context()).Val() },
		Join: func(t testing.TB) driver.Driver {
			return redislock.New(newClient(t, redis.Options{Addr: addr}))
		},
	})
}
