package zklock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/core/zklock"
)

func digest() []zk.ACL { return zk.DigestACL(zk.PermAll, "locks", "secret") }

// section is the time in which a process believed that it held the key.
type section struct {
	from, to time.Time
	token    int64
}

// TestLeaderKilledUnderLoad kills the leader of three servers with SIGKILL while
// processes take turns at one key, twice: nobody holds it together with another,
// tokens rise, and everybody finishes.
func TestLeaderKilledUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for seconds")
	}
	t.Parallel()
	const processes, rounds = 6, 25
	servers := zktest.StartEnsemble(t, 3, warm)
	var addrs []string
	for _, s := range servers {
		addrs = append(addrs, s.Addr())
	}
	var (
		mu      sync.Mutex
		all     []section
		done    atomic.Int64
		running sync.WaitGroup
	)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for range processes {
		p := open(t, zklock.New(addrs, zklock.WithSessionTimeout(10*time.Second)))
		running.Go(func() {
			for n := 0; n < rounds; {
				r := request("k", 4*time.Second)
				r.Wait = true
				g, err := p.Acquire(ctx, r)
				if ctx.Err() != nil {
					t.Errorf("after %d rounds: %v", n, ctx.Err())
					return
				}
				if err != nil {
					continue // the servers have no leader, or the place was lost
				}
				from := time.Now()
				<-time.After(2 * time.Millisecond)
				to := time.Now()
				if g.Deadline.Before(to) {
					to = g.Deadline
				}
				if from.Before(to) { // or else it was over when it began, and claims nothing
					mu.Lock()
					all = append(all, section{from, to, g.Token})
					mu.Unlock()
				}
				for ctx.Err() == nil {
					if err := p.Release(ctx, []driver.Ending{ending(g)})[0]; err == nil || errors.Is(err, driver.ErrNotHeld) {
						break
					}
				}
				n++
				done.Add(1)
			}
		})
	}
	for i := range 2 {
		eventually(t, "some rounds", func() bool { return int(done.Load()) > (i+1)*processes*rounds/4 || t.Failed() })
		var leader int
		eventually(t, "a leader", func() bool {
			leader = slices.IndexFunc(servers, func(s *testservers.Server) bool { return s.Mode() == "leader" })
			return leader >= 0
		})
		servers[leader].Kill()
		before := done.Load()
		eventually(t, "rounds without the old leader", func() bool { return done.Load() > before+processes || done.Load() == processes*rounds })
		servers[leader].Restart()
	}
	running.Wait()
	if n := done.Load(); n != processes*rounds {
		t.Errorf("%d rounds of %d were finished", n, processes*rounds)
	}
	slices.SortFunc(all, func(a, b section) int { return a.from.Compare(b.from) })
	for i := 1; i < len(all); i++ {
		if a, b := all[i-1], all[i]; b.from.Before(a.to) || b.token <= a.token {
			t.Fatalf("token %d was believed in until %v after token %d began", a.token, a.to.Sub(b.from), b.token)
		}
	}
	t.Logf("%d sections, none at the same time as another", len(all))
}
