package redislock_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

// BenchmarkFairness passes one key among 64 callers and says what each order costs: the
// time and the commands of a critical section, and the longest wait in rounds of the
// callers, which is 1 if each is served once in turn.
func BenchmarkFairness(b *testing.B) {
	const callers = 64
	for name, fairness := range map[string]core.Fairness{"balanced": core.Balanced, "strict": core.Strict} {
		for _, processes := range []int{1, 4} {
			b.Run(fmt.Sprint(name, "/", processes, " processes"), func(b *testing.B) {
				server := testservers.Redis(b)
				var engines []*engine
				for range processes {
					engines = append(engines, newEngine(b, redis.NewClient(&redis.Options{Addr: server.Addr()})))
				}
				observer := redis.NewClient(&redis.Options{Addr: server.Addr()})
				defer func() { _ = observer.Close() }()
				policy := core.Policy{Key: "k", Fairness: fairness, Wait: core.Forever}
				for _, e := range engines { // connects it
					if err := e.Do(b.Context(), policy, func(context.Context) error { return nil }); err != nil {
						b.Fatal(err)
					}
				}
				before := scripts(commands(b, observer))
				var left, longest atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				gather(callers, func(i int) {
					for left.Add(-1) >= 0 {
						asked := time.Now()
						err := engines[i%processes].Do(context.Background(), policy, func(context.Context) error {
							longest.Store(max(longest.Load(), int64(time.Since(asked)))) // under the lock
							return nil
						})
						if err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.StopTimer()
				b.ReportMetric(float64(scripts(commands(b, observer))-before)/float64(b.N), "commands/section")
				b.ReportMetric(float64(longest.Load())/(float64(b.Elapsed())/float64(b.N)*callers), "rounds-longest-wait")
			})
		}
	}
}
