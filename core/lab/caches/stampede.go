package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
)

// stampede has all callers ask for a value at the moment when it has ended, again and
// again. The keys are filled by all processes, so that each may have its copies, and
// asked for one after the other when all have ended.
func stampede(ctx context.Context, t *trial) (Outcome, error) {
	crew, err := recruit(ctx, t, t.Pace.Processes, Settings{Expiry: t.Pace.Expiry})
	if err != nil {
		return Outcome{}, err
	}
	defer crew.Close()
	keys := keysOf(t, t.Pace.Waves)
	if _, err := crew.Ask(Command{Fill: &Fill{Keys: keys}}); err != nil {
		return Outcome{}, err
	}
	if err := contest.Sleep(ctx, t.Pace.Expiry+t.Pace.Expiry/2); err != nil { // copies may live a tenth longer
		return Outcome{}, err
	}
	if err := change(ctx, t.Client, 1, keys...); err != nil {
		return Outcome{}, err
	}
	gets, loads, most := newGets(), int64(0), int64(0)
	for _, key := range keys {
		before, err := countLoads(ctx, t.Client, key)
		if err != nil {
			return Outcome{}, err
		}
		answers, err := crew.Ask(Command{Wave: &Wave{
			Key: key, Version: 1, At: time.Now().Add(lead).UnixNano(), Callers: t.Pace.Callers, Takes: t.Pace.Takes,
		}})
		if err != nil {
			return Outcome{}, err
		}
		for _, a := range answers {
			gets.merge(a.Gets)
		}
		after, err := countLoads(ctx, t.Client, key)
		if err != nil {
			return Outcome{}, err
		}
		loads, most = loads+after-before, max(most, after-before)
	}
	return outcome(gets, map[string]float64{
		"loads": float64(loads) / float64(len(keys)),
		"most":  float64(most),
		"p50":   milliseconds(gets.Waits.Quantile(0.5)),
		"p99":   milliseconds(gets.Waits.Quantile(0.99)),
		"max":   milliseconds(gets.Waits.Worst()),
	}), nil
}

var stampedeMetrics = []Metric{
	{Name: "loads", Title: "loads for each value that ended", Unit: measure.Each, Chart: true},
	{Name: "most", Title: "the most for one", Unit: measure.Each},
	{Name: "p50", Title: "median of Get", Unit: measure.Milliseconds},
	{Name: "p99", Title: "p99 of Get", Unit: measure.Milliseconds, Chart: true},
	{Name: "max", Title: "longest Get", Unit: measure.Milliseconds},
}

// lead is how long before its moment a wave is announced.
const lead = 20 * time.Millisecond

// Wave is one Get of each caller, all at the same moment.
type Wave struct {
	Key     string        `json:"key"`
	Version int64         `json:"version"` // a value that is older is a failure
	At      int64         `json:"at"`      // the moment, as Unix time in ns
	Callers int           `json:"callers"`
	Takes   time.Duration `json:"takes"` // a load
}

// do times each Get from the moment when all were to begin, so that one whose caller was
// kept from beginning is as long as it was for him.
func (c *Wave) do(ctx context.Context, w *worker) (Answer, error) {
	w.source.takes.Store(int64(c.Takes))
	ctx, cancel := context.WithTimeout(ctx, c.Takes+patience)
	defer cancel()
	at := time.Unix(0, c.At)
	var all sync.WaitGroup
	begin, ended, errs := make(chan struct{}), make([]time.Duration, c.Callers), make([]error, c.Callers)
	for i := range c.Callers {
		all.Go(func() {
			<-begin
			item, err := w.process.Get(ctx, c.Key)
			ended[i] = time.Since(at)
			switch {
			case err == nil && item.ID != c.Key:
				err = fmt.Errorf("the value is of %q", item.ID)
			case err == nil && item.Version < c.Version:
				err = fmt.Errorf("the value has version %d of the source; it ended before version %d", item.Version, c.Version)
			}
			errs[i] = err
		})
	}
	time.Sleep(time.Until(at))
	close(begin)
	all.Wait()
	gets := newGets()
	for i, d := range ended {
		gets.add(d, errs[i])
	}
	return Answer{Gets: gets}, nil
}
