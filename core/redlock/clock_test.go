package redlock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/jumps"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/internal/wallclock"
)

// TestTokensRiseThoughANodesClockJumpsByAnHour has the clock of one of three nodes jump: it
// frees its votes too soon, or too late. The former ends leases that rest on its vote and
// one more.
func TestTokensRiseThoughANodesClockJumpsByAnHour(t *testing.T) {
	t.Parallel()
	clock := wallclock.New(t)
	servers := append(startServers(t, 2), redistest.StartIn(t, clock.Environment()))
	asks := newClient(t, servers[2].Addr())
	jumps.Run(t, 2, jumps.Store{
		Clock: clock,
		Now: func() time.Time {
			now, err := asks.Time(t.Context()).Result()
			if err != nil {
				t.Error(err)
			}
			return now
		},
		Join: func(t testing.TB) driver.Driver {
			var nodes []*redis.Client
			for _, s := range servers {
				nodes = append(nodes, newClient(t, s.Addr()))
			}
			return New(nodes)
		},
	})
}
