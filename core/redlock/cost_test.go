package redlock

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
)

var commandCalls = regexp.MustCompile(`(?m)^cmdstat_evalsha:calls=(\d+)`)

// commands counts the scripts that all nodes have run.
func (f *fleet) commands() int {
	f.t.Helper()
	total := 0
	for _, c := range f.direct {
		text, err := c.Info(f.t.Context(), "commandstats").Result()
		if err != nil {
			f.t.Fatal(err)
		}
		if m := commandCalls.FindStringSubmatch(text); m != nil {
			n, _ := strconv.Atoi(m[1])
			total += n
		}
	}
	return total
}

func TestFreeKeyCostsTwoCommandsOfEachNode(t *testing.T) {
	for _, n := range []int{3, 5} {
		f := startFleet(t, n)
		a := join(t, f.direct)
		a.drop(a.take("k", ttl))
		eventually(t, "the other nodes", func() bool { return f.votes(t, "k") == 0 })
		before := f.commands()
		const rounds = 50
		for range rounds {
			a.drop(a.take("k", ttl))
		}
		eventually(t, "the other nodes", func() bool { return f.votes(t, "k") == 0 })
		// Now and then an acquisition proposes a token.
		if got, most := f.commands()-before, rounds*(2*n+1); got > most {
			t.Errorf("%d nodes: %d commands for %d acquisitions and releases, more than %d", n, got, rounds, most)
		} else {
			t.Logf("%d nodes: %.1f commands for an acquisition and its release", n, float64(got)/rounds)
		}
	}
}

func TestHandOverCostsWithManyWaiters(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	for _, waiters := range []int{2, 32} {
		f := startFleet(t, 3)
		a := join(t, f.direct)
		var ps []*peer
		for range waiters {
			ps = append(ps, join(t, f.direct))
		}
		g := a.take("k", ttl)
		var queue []<-chan result
		for _, p := range ps {
			queue = append(queue, p.queue("k", ttl))
		}
		before, began := f.commands(), time.Now()
		var took []time.Duration
		for i, w := range queue {
			freed := time.Now()
			if i == 0 {
				a.drop(g)
			} else {
				ps[i-1].drop(g)
			}
			next := <-w
			if next.err != nil {
				t.Fatal(next.err)
			}
			took = append(took, next.at.Sub(freed))
			g = next.Grant
		}
		ps[waiters-1].drop(g)
		slices.Sort(took)
		refreshes := float64(waiters) / 2 * 3 / 0.84 * time.Since(began).Seconds()
		t.Logf("%d waiters: hand-over in %v (median), %v (largest); %.1f commands each, of which about %.1f refresh places", waiters,
			took[len(took)/2], took[len(took)-1], float64(f.commands()-before)/float64(waiters), refreshes/float64(waiters))
	}
}

func BenchmarkDriver(b *testing.B) {
	for _, n := range []int{3, 5} {
		b.Run(fmt.Sprintf("%dNodes", n), func(b *testing.B) {
			f := startFleet(b, n)
			suites.Bench(b, func(t testing.TB) driver.Driver {
				var clients []*redis.Client
				for _, s := range f.servers {
					clients = append(clients, newClient(t, s.Addr()))
				}
				return New(clients)
			})
		})
	}
}

// BenchmarkCrowd has a hundred callers take and release keys of their own.
func BenchmarkCrowd(b *testing.B) {
	f := startFleet(b, 3)
	p := join(b, f.direct)
	var callers atomic.Int64
	b.SetParallelism(50) // for each of the cores
	b.RunParallel(func(next *testing.PB) {
		key := fmt.Sprint("k", callers.Add(1))
		for next.Next() {
			g, err := p.try(key, 10*time.Second)
			if err == nil {
				err = p.release(g)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(callers.Load()), "callers")
}
