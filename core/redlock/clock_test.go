package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestTokensRiseThoughANodesClockJumpsByAnHour has the clock of one of three nodes jump: it
// frees its votes too soon, or too late. The former ends leases that rest on its vote and
// one more.
func TestTokensRiseThoughANodesClockJumpsByAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a clock, and restarts servers")
	}
	t.Parallel()
	servers := append(startServers(t, 2), testservers.RedisWithClock(t))
	asks := newClient(t, servers[2].Addr())
	suites.Jumps(t, 2, suites.Clocked{
		Server: servers[2],
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

// TestTokensRiseThoughAClockWasAheadAndANodeForgets grants a token while node 0's clock is ahead.
// Later, when that is put right, the nodes that are asked first have forgotten the token.
func TestTokensRiseThoughAClockWasAheadAndANodeForgets(t *testing.T) {
	for _, c := range []struct {
		what         string
		ahead, later time.Duration
		forget       []int // nodes
	}{
		{"two hashes end an hour after the lease", 2 * time.Hour, 70 * time.Minute, []int{1, 2}},
		{"one node restarts without its data", 10 * time.Minute, 2 * time.Second, []int{1}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := []*laggingNode{{}, {}, {}}
				nodes[0].model = newModel("ahead")
				nodes[0].clock = func() time.Time { return time.Now().Add(c.ahead) }
				p := openLagging(t, nodes)
				warm := p.take("another", time.Minute) // so that it knows all clocks
				p.drop(warm)
				if len(c.forget) == 1 {
					nodes[2].lag(map[operation][]lag{opVote: {{lost: true}}, opAccept: {{lost: true}}})
				}
				first := p.take("k", time.Minute)
				p.drop(first)
				nodes[0].mu.Lock()
				nodes[0].clock = time.Now
				nodes[0].mu.Unlock()
				time.Sleep(c.later)
				for _, i := range c.forget {
					nodes[i].wipe()
				}
				nodes[0].lag(map[operation][]lag{opVote: {{to: time.Second}}})
				other := openLagging(t, nodes)
				second := other.take("k", time.Minute)
				if second.Token <= first.Token {
					t.Errorf("token %d was granted after token %d", second.Token, first.Token)
				}
				other.drop(second)
				for _, p := range []*peer{p, other} {
					if err := p.Close(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}
