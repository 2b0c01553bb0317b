package redislock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// BenchmarkFreeKeys runs critical sections of a key of each caller's own, in one
// process.
func BenchmarkFreeKeys(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			server := testservers.Redis(b)
			e := newEngine(b, redis.NewClient(&redis.Options{Addr: server.Addr()}))
			nothing := func(context.Context) error { return nil }
			if err := e.Do(b.Context(), core.Policy{Key: "warm"}, nothing); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			var left atomic.Int64
			left.Store(int64(b.N))
			b.ResetTimer()
			gather(callers, func(i int) {
				p := core.Policy{Key: fmt.Sprint("k", i)}
				for left.Add(-1) >= 0 {
					if err := e.Do(context.Background(), p, nothing); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sections/s")
		})
	}
}

// BenchmarkSeveralKeys takes free keys of one policy and releases them.
func BenchmarkSeveralKeys(b *testing.B) {
	for _, n := range []int{1, 2, 10} {
		b.Run(fmt.Sprint(n, " keys"), func(b *testing.B) {
			server := testservers.Redis(b)
			e := newEngine(b, redis.NewClient(&redis.Options{Addr: server.Addr()}))
			var p core.Policy
			for i := range n {
				p.Keys = append(p.Keys, fmt.Sprint("k", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				l, err := e.Acquire(b.Context(), p)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandOver passes one key among eight processes that are 5 ms away from
// the server. It reports the time from one process's wish to release to the next
// one's grant, in round trips of the link: median and 99th percentile.
func BenchmarkHandOver(b *testing.B) {
	const (
		processes = 8
		oneWay    = 5 * time.Millisecond
	)
	server := testservers.Redis(b)
	proxy := redistest.NewProxy(b, server.Addr())
	ps := make([]*process, processes)
	for i := range ps {
		ps[i] = join(b, proxy.Addr())
	}
	warm(ps...)
	proxy.Delay(oneWay, oneWay)

	var mu sync.Mutex
	var released time.Time
	var took []time.Duration
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	gather(processes, func(i int) {
		ctx := context.Background()
		for left.Add(-1) >= 0 {
			g, err := ps[i].Acquire(ctx, driver.Request{ID: newID("k"), TTL: 30 * time.Second, Wait: true})
			if err != nil {
				b.Error(err)
				return
			}
			mu.Lock()
			if !released.IsZero() {
				took = append(took, time.Since(released))
			}
			released = time.Now()
			mu.Unlock()
			if err := ps[i].Release(ctx, []driver.Ending{ending(g)})[0]; err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.StopTimer()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	trips := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))]) / float64(2*oneWay)
	}
	b.ReportMetric(trips(0.5), "trips-median")
	b.ReportMetric(trips(0.99), "trips-p99")
}

func BenchmarkDriver(b *testing.B) {
	server := testservers.Redis(b)
	suites.Bench(b, func(t testing.TB) driver.Driver {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		t.Cleanup(func() { _ = client.Close() }) // it has done its work
		return redislock.New(client)
	})
}
