package suites

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const long = 30 * time.Second

// Bench measures every driver in the same way: what a free key costs, how long a key takes
// from one process to the next, and how long after a crash. join returns one of the same store, as another process would
// have it.
func Bench(b *testing.B, join func(testing.TB) driver.Driver) {
	b.Run("FreeKey", func(b *testing.B) { freeKey(b, open(b, join)) })
	for _, waiters := range []int{2, 32} {
		b.Run(fmt.Sprintf("HandOver/%dWaiters", waiters), func(b *testing.B) {
			var ps []*process
			for range waiters + 1 {
				ps = append(ps, open(b, join))
			}
			handOver(b, ps)
		})
	}
	b.Run("Crash", func(b *testing.B) { vanish(b, open(b, join), open(b, join)) })
}

// process is a session of [Bench], and a sink that is told in vain.
type process struct{ driver.Session }

func (*process) Waiting(driver.ID)         {}
func (*process) Contended(driver.ID, bool) {}
func (*process) Lost(driver.ID, error)     {}

func open(b *testing.B, join func(testing.TB) driver.Driver) *process {
	b.Helper()
	p := &process{}
	s, err := join(b).Open(driver.Config{Sink: p, StoreTimeout: 20 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	p.Session = s
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			b.Errorf("close a session: %v", err)
		}
	})
	return p
}

func (p *process) acquire(key string, ttl time.Duration) (driver.Grant, error) {
	r := driver.Request{ID: driver.ID{Key: key}, TTL: ttl, Wait: true}
	_, _ = rand.Read(r.Owner[:]) // never fails: crypto/rand ends the program instead
	return p.Acquire(context.Background(), r)
}

func (p *process) release(g driver.Grant) error {
	return p.Release(context.Background(), []driver.Ending{{ID: g.ID, Ref: g.Ref, Token: g.Token, Deadline: g.Deadline}})[0]
}

// section takes the key and gives it back.
func (p *process) section(b *testing.B) {
	g, err := p.acquire("bench", long)
	if err == nil {
		err = p.release(g)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func freeKey(b *testing.B, p *process) {
	p.section(b)
	for b.Loop() {
		p.section(b)
	}
}

// handOver has all processes want one key all the time. It reports the time from one's
// wish to release to the next one's grant: median, 99th percentile and the worst.
func handOver(b *testing.B, ps []*process) {
	for _, p := range ps {
		p.section(b)
	}
	var (
		left     atomic.Int64
		running  sync.WaitGroup
		mu       sync.Mutex
		released time.Time
		took     []time.Duration
	)
	left.Store(int64(b.N + len(ps)))
	b.ResetTimer()
	for _, p := range ps {
		running.Go(func() {
			for left.Add(-1) >= 0 {
				g, err := p.acquire("bench", long)
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
				if err := p.release(g); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	b.StopTimer()
	if b.Failed() {
		return
	}
	slices.Sort(took)
	at := func(q float64) float64 {
		return float64(took[int(q*float64(len(took)-1))]) / float64(time.Millisecond)
	}
	b.ReportMetric(0, "ns/op") // with all that goes on beside it
	b.ReportMetric(at(0.5), "ms-median")
	b.ReportMetric(at(0.99), "ms-p99")
	b.ReportMetric(at(1), "ms-worst")
}

// vanish has a holder vanish while another waits. It reports how long after the TTL the
// other is granted the key, at most; the TTL counts from before the holder asked.
func vanish(b *testing.B, holder, waiter *process) {
	const ttl = 2 * time.Second
	worst := time.Duration(0)
	for i := range b.N {
		key := fmt.Sprint("crash ", i)
		asked := time.Now()
		if _, err := holder.acquire(key, ttl); err != nil { // and is not heard of again
			b.Fatal(err)
		}
		g, err := waiter.acquire(key, long)
		if err != nil {
			b.Fatal(err)
		}
		worst = max(worst, time.Since(asked)-ttl)
		if err := waiter.release(g); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(worst)/float64(time.Millisecond), "ms-after-TTL-at-most")
}
