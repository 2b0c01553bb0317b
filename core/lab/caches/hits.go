package main

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// hits has the callers of one process get values that are there, as often as they can.
func hits(ctx context.Context, t *trial) (Outcome, error) {
	crew, err := recruit(ctx, t, 1, Settings{Expiry: 10 * time.Minute})
	if err != nil {
		return Outcome{}, err
	}
	defer crew.Close()
	keys := keysOf(t, t.Pace.Keys)
	if _, err := crew.Ask(Command{Fill: &Fill{Keys: keys}}); err != nil {
		return Outcome{}, err
	}
	answers, err := crew.Ask(Command{Hits: &Hits{Keys: keys, Callers: 64, Warm: t.Pace.Warm, For: t.Pace.Watch}})
	if err != nil {
		return Outcome{}, err
	}
	a := answers[0]
	return outcome(a.Gets, map[string]float64{
		"rate":   a.Rate,
		"p99":    micros(a.Gets.Waits.Quantile(0.99)),
		"allocs": a.Allocs,
	}), nil
}

var hitsMetrics = []Metric{
	{Name: "rate", Title: "gets", Unit: measure.PerSecond, More: true, Chart: true},
	{Name: "p99", Title: "p99 of Get", Unit: measure.Microseconds},
	{Name: "allocs", Title: "allocations for each", Unit: measure.Each},
}

// Hits are gets of keys that are there.
type Hits struct {
	Keys    []string      `json:"keys"`
	Callers int           `json:"callers"`
	Warm    time.Duration `json:"warm"` // before it counts
	For     time.Duration `json:"for"`  // how long it counts
}

func (h *Hits) do(ctx context.Context, w *worker) (Answer, error) {
	var phase atomic.Int32 // 0 while it does not count yet, 1 while it does, 2 when it is over
	var all sync.WaitGroup
	each := make([]*Gets, h.Callers)
	for i := range each {
		each[i] = newGets()
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for {
				began := time.Now()
				_, err := w.process.Get(ctx, h.Keys[random.IntN(len(h.Keys))])
				switch phase.Load() {
				case 1:
					each[i].add(time.Since(began), err)
				case 2:
					return
				}
			}
		})
	}
	time.Sleep(h.Warm)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	phase.Store(1)
	time.Sleep(h.For)
	phase.Store(2)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	all.Wait()
	gets := newGets()
	for _, g := range each {
		gets.merge(g)
	}
	n := float64(max(gets.Waits.Count(), 1))
	return Answer{Gets: gets, Rate: n / took.Seconds(), Allocs: float64(after.Mallocs-before.Mallocs) / n}, nil
}
