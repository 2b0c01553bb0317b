package decorator

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
)

// leaderOutcome is how a term ended, as telemetry calls it.
type leaderOutcome string

const (
	leaderDone     leaderOutcome = "done"     // the function returned nil
	leaderFailed   leaderOutcome = "failed"   // it returned an error, or panicked
	leaderResigned leaderOutcome = "resigned" // it was asked to return
	leaderLost     leaderOutcome = "lost"     // the lease had ended before it returned
)

// leaderSignals are the metrics of one leadership.
type leaderSignals struct {
	terms metric.Int64Counter
	name  attribute.KeyValue
}

func newLeaderSignals(e *core.Engine, name string, leading func() bool) (*leaderSignals, error) {
	m := instruments.NewMeter(e.MeterProvider())
	s := &leaderSignals{name: instruments.NameKey.String(name), terms: m.Counter(instruments.LeaderTerms)}
	leads := m.Gauge(instruments.LeaderLeading)
	m.Observe(instruments.LeaderLeading.Scope, func(_ context.Context, o metric.Observer) error {
		var n int64
		if leading() {
			n = 1
		}
		o.ObserveInt64(leads, n, metric.WithAttributes(s.name))
		return nil
	}, leads)
	return s, m.Err()
}

func (s *leaderSignals) ended(ctx context.Context, o leaderOutcome) {
	s.terms.Add(ctx, 1, metric.WithAttributes(s.name, instruments.OutcomeKey.String(string(o))))
}
