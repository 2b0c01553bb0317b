package decorator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core"
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

// cacheSignals are the metrics of one cached function.
type cacheSignals struct {
	gets  metric.Int64Counter
	loads metric.Float64Histogram
	get   [len(getOutcomes)][]metric.AddOption
	load  [len(loadOutcomes)]metric.MeasurementOption
}

func newCacheSignals(e *core.Engine, name string) (*cacheSignals, error) {
	s, m := &cacheSignals{}, e.MeterProvider().Meter("github.com/lockaround/lockaround/decorator")
	buckets := metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	var errs [2]error
	s.gets, errs[0] = m.Int64Counter("lock.cache.gets", metric.WithUnit("{call}"), metric.WithDescription("Calls of a cached function by this process, by how they ended."))
	s.loads, errs[1] = m.Float64Histogram("lock.cache.load.duration", metric.WithUnit("s"), metric.WithDescription("Time that the function under a cache ran, until its value was stored."), buckets)
	with := func(outcome string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("lock.name", name), attribute.String("lock.outcome", outcome)))
	}
	for o, outcome := range getOutcomes {
		s.get[o] = []metric.AddOption{with(outcome)}
	}
	for o, outcome := range loadOutcomes {
		s.load[o] = with(outcome)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("cache telemetry: %w", err)
	}
	return s, nil
}

func (s *cacheSignals) got(ctx context.Context, o getOutcome) { s.gets.Add(ctx, 1, s.get[o]...) }

func (s *cacheSignals) loaded(ctx context.Context, o loadOutcome, lasted time.Duration) {
	s.loads.Record(ctx, lasted.Seconds(), s.load[o])
}
