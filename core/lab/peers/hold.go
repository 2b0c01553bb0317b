package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Weight is what a process has in memory, or by how much that grew. What the callers have
// themselves is not in it: keys, and what they unlock with up to 24 bytes for each.
type Weight struct {
	Heap       int64 `json:"heap"`   // bytes
	Stacks     int64 `json:"stacks"` // bytes
	Goroutines int64 `json:"goroutines"`
}

// weigh collects garbage first, twice for what has a finalizer or lies in a pool.
func weigh() Weight {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return Weight{Heap: int64(m.HeapAlloc), Stacks: int64(m.StackInuse), Goroutines: int64(runtime.NumGoroutine())}
}

// heldAtOnce is how many callers ask at once for what is to be held.
const heldAtOnce = 64

// hold has all callers take their locks and keep them for two TTLs, so that none is left
// that was not renewed, and weighs what that adds to a process that is connected.
func hold(ctx context.Context, s *stage) {
	ctx, cancel := context.WithTimeout(ctx, s.pace.Limit)
	defer cancel()
	held := make([]func() error, len(s.callers))
	s.each(heldAtOnce, func(i int) { // has connections for as many
		key := fmt.Sprint(s.prefix, "-warm-", s.number, "-", i)
		if unlock, err := s.process.Lock(ctx, key); err == nil {
			s.end(unlock)
		}
	})
	before := weigh()
	s.each(len(s.callers), func(i int) { held[i] = s.lock(ctx, i) })
	after := weigh()
	s.outcome.Leases = Weight{after.Heap - before.Heap, after.Stacks - before.Stacks, after.Goroutines - before.Goroutines}

	began := time.Now()
	time.Sleep(2 * s.scenario.TTL)
	s.outcome.Began, s.outcome.Watched = began.UnixNano(), time.Since(began)
	s.each(len(s.callers), func(i int) {
		if held[i] != nil {
			s.callers[i].sections.Add(1)
			s.end(held[i])
		}
	})
	s.outcome.Ended, s.outcome.Sections = time.Now().UnixNano(), s.sections()
}

// each calls f with all numbers below n, in a bounded number of goroutines.
func (s *stage) each(n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range heldAtOnce {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	all.Wait()
}
