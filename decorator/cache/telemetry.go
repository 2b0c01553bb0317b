package cache

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
)

// getOutcome is how a call of Get ended.
type getOutcome uint8

const (
	getFresh  getOutcome = iota
	getStale             // with a stale value
	getLoaded            // after a refill, whoever made it
	getFailed
)

var getOutcomes = [...]string{"fresh", "stale", "loaded", "failed"}

// loadOutcome is how a load ended.
type loadOutcome uint8

const (
	loadStored   loadOutcome = iota
	loadUnstored             // somebody else's counts, or the key was invalidated
	loadRefused              // the store did not answer, or refused
	loadNotFound
	loadFailed
	loadPanicked
)

var loadOutcomes = [...]string{"stored", "unstored", "store_failed", "not_found", "failed", "panicked"}

// signals are the metrics of one cached function.
type signals struct {
	gets  metric.Int64Counter
	loads metric.Float64Histogram
	get   [len(getOutcomes)][]metric.AddOption
	load  [len(loadOutcomes)]metric.MeasurementOption

	ended [len(loadOutcomes)]atomic.Int64 // loads of this process, for its panel
}

func newSignals(e *core.Engine, name string) (*signals, error) {
	m := instruments.NewMeter(e.MeterProvider())
	s := &signals{gets: m.Counter(instruments.CacheGets), loads: m.Histogram(instruments.CacheLoadDuration)}
	with := func(outcome string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(instruments.NameKey.String(name), instruments.OutcomeKey.String(outcome)))
	}
	for o, outcome := range getOutcomes {
		s.get[o] = []metric.AddOption{with(outcome)}
	}
	for o, outcome := range loadOutcomes {
		s.load[o] = with(outcome)
	}
	return s, m.Err()
}

func (s *signals) got(ctx context.Context, o getOutcome) { s.gets.Add(ctx, 1, s.get[o]...) }

func (s *signals) loaded(ctx context.Context, o loadOutcome, lasted time.Duration) {
	s.ended[o].Add(1)
	s.loads.Record(ctx, lasted.Seconds(), s.load[o])
}

// Panel says how many loads this process has under way and how those before have ended, for a page
// that an operator looks at. It asks no store.
func (f *Func[In, Out]) Panel(context.Context) core.Panel {
	f.mu.Lock()
	under := 0
	for _, fl := range f.flights {
		if !fl.over {
			under++
		}
	}
	paused := len(f.paused)
	f.mu.Unlock()
	p := core.Panel{Title: "cache " + f.guard.Name(), Columns: []string{"loads under way", "keys whose refresh has just failed"}}
	row := []any{under, paused}
	for o := range f.signals.ended {
		p.Columns, row = append(p.Columns, loadOutcomes[o]), append(row, f.signals.ended[o].Load())
	}
	p.Rows = [][]any{row}
	return p
}
