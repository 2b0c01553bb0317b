package zklock_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/core/zklock"
)

// TestCostInRequests keeps doc.go honest.
func TestCostInRequests(t *testing.T) {
	t.Parallel()
	_, proxy, a, d := pair(t)
	b := open(t, d)
	count := func() int { return proxy.Count(zktest.Requests) }
	round := func() int {
		before := count()
		a.drop(a.take("k", hold))
		return count() - before
	}
	// The servers delete the key's node now and then, and a slow machine holds the key for so
	// long that it is watched.
	cheap := 0
	eventually(t, "ten acquisitions and releases of a free key by 2 requests", func() bool {
		n := round()
		if n < 2 {
			t.Errorf("an acquisition and release of a free key took %d requests", n)
		}
		if n == 2 {
			cheap++
		}
		return cheap == 10
	})

	// A poll or a refresh may fall into a section, and a slow machine holds the key for so long
	// that it is watched. So the cheapest of several counts.
	c := open(t, d)
	for _, s := range []struct {
		what   string
		before []*process // hold the key one after the other
		most   int
	}{
		{"a section that was next in line", []*process{b}, 4}, // create, read the line, watch, delete
		{"a section that had two before it", []*process{b, c}, 5},
	} {
		least := math.MaxInt
		for round := 0; round < 100 && least > s.most; round++ {
			holder, g := b, b.take("k", hold)
			var queue []<-chan outcome
			for _, p := range s.before[1:] {
				queue = append(queue, p.queue("k", hold))
			}
			before := count()
			w := a.queue("k", hold)
			for i, next := range queue {
				holder.drop(g)
				holder, g = s.before[i+1], granted(t, "the hand-over to one before", next)
			}
			holder.drop(g)
			a.drop(granted(t, "the hand-over", w))
			least = min(least, count()-before)
		}
		if least != s.most {
			t.Errorf("%s took %d requests, want %d", s.what, least, s.most)
		}
	}
}

// pin keeps the servers from deleting the node of the key "k", which they do when it is
// empty: it gets something in it that is nobody's.
func (p *process) pin(s *testservers.Server) {
	p.t.Helper()
	conn := raw(p.t, s)
	eventually(p.t, "something in the key's node", func() bool {
		p.drop(p.take("k", hold))
		_, err := conn.Create(zklock.DefaultRoot+"/=k/pin", nil, zk.FlagPersistent, zk.WorldACL(zk.PermAll))
		return err == nil
	})
}

// TestHandOverCostsTheSameHoweverManyWait passes a key along a queue of one process.
func TestHandOverCostsTheSameHoweverManyWait(t *testing.T) {
	t.Parallel()
	s, proxy, a, d := pair(t)
	b := open(t, d)
	a.pin(s)
	for _, n := range []int{2, 32} {
		// A hand-over is the release, and the next holder's reading of the line. The waiters'
		// first requests may fall into it, so the cheapest counts; on a slow machine polls and
		// refreshes fall into it too.
		most, least := 2*n, math.MaxInt
		for round := 0; round < 10 && least > most; round++ {
			g := b.take("k", hold)
			came := time.Now()
			queue := a.queues(n, "k")
			began := time.Now()
			before := proxy.Count(zktest.Requests)
			b.drop(g)
			for _, w := range queue {
				a.drop(granted(t, "the hand-over", w))
			}
			after := proxy.Count(zktest.Requests)
			least = min(least, after-before-signs(n, pollInterval, came, began)-signs(n, refreshInterval, came, began))
		}
		t.Logf("%d hand-overs took %d requests", n, least)
		if least > most {
			t.Errorf("%d hand-overs took %d requests, want at most %d", n, least, most)
		}
	}
}

func BenchmarkDriver(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("%dServers", n), func(b *testing.B) {
			var addrs []string
			if n == 1 {
				addrs = append(addrs, zktest.Start(b, warm).Addr())
			} else {
				for _, s := range zktest.StartEnsemble(b, n, warm) {
					addrs = append(addrs, s.Addr())
				}
			}
			suites.Bench(b, func(testing.TB) driver.Driver { return zklock.New(addrs) })
		})
	}
}
