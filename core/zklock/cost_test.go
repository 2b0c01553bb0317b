package zklock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/driverbench"
	"github.com/lockaround/lockaround/core/zklock"
	"github.com/lockaround/lockaround/core/zklock/internal/zktest"
)

// TestCostInRequests keeps doc.go honest.
func TestCostInRequests(t *testing.T) {
	_, proxy, a, d := pair(t)
	b := open(t, d)
	count := func() int {
		n, _ := proxy.Counts()
		return n
	}
	round := func() int {
		before := count()
		a.drop(a.take("k", time.Minute))
		return count() - before
	}
	eventually(t, "an acquisition and release of a free key by 4 requests, once the key is made and watched", func() bool { return round() == 4 })
	for range 10 {
		if n := round(); n != 4 {
			t.Errorf("an acquisition and release of a free key took %d requests, want 4", n)
		}
	}

	g := b.take("k", time.Minute)
	w := a.queue("k", time.Minute)
	before := count()
	b.drop(g)
	g = granted(t, "the hand-over", w)
	if n := count() - before; n > 4 { // a glance, or a sign of life, may fall into it
		t.Errorf("a hand-over took %d requests of the next holder, want 2", n)
	}
	a.drop(g)
}

// TestHandOverCostsTheSameHoweverManyWait passes a key along a queue of one process.
func TestHandOverCostsTheSameHoweverManyWait(t *testing.T) {
	_, proxy, a, d := pair(t)
	b := open(t, d)
	a.drop(a.take("k", time.Minute))
	for _, n := range []int{2, 32} {
		g := b.take("k", time.Minute)
		var queue []<-chan outcome
		for range n {
			queue = append(queue, a.queue("k", time.Minute))
		}
		before, _ := proxy.Counts()
		began := time.Now()
		b.drop(g)
		for _, w := range queue {
			a.drop(granted(t, "the hand-over", w))
		}
		after, _ := proxy.Counts()
		took := time.Since(began)
		t.Logf("%d hand-overs took %d requests and %v", n, after-before, took)
		glances := n * int(1+took/(500*time.Millisecond))
		// The end of a lease, the next one's write and its look at the line, and a look at
		// that one by who is next now. To be told of others costs a few once.
		if most := 4*n + 4 + glances; after-before > most {
			t.Errorf("%d hand-overs took %d requests, want at most %d", n, after-before, most)
		}
	}
}

func BenchmarkDriver(b *testing.B) {
	for _, n := range []int{1, 3} {
		b.Run(fmt.Sprintf("%dServers", n), func(b *testing.B) {
			var addrs []string
			if n == 1 {
				addrs = append(addrs, zktest.Start(b).Addr())
			} else {
				for _, s := range zktest.StartEnsemble(b, n) {
					addrs = append(addrs, s.Addr())
				}
			}
			driverbench.Run(b, func(testing.TB) driver.Driver { return zklock.New(addrs) })
		})
	}
}
