package leader

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
)

// outcome is how a term ended, as telemetry calls it.
type outcome string

const (
	done     outcome = "done"     // the function returned nil
	failed   outcome = "failed"   // it returned an error, or panicked
	resigned outcome = "resigned" // it was asked to return
	lost     outcome = "lost"     // the lease had ended before it returned
)

// signals are the metrics of one leadership.
type signals struct {
	terms metric.Int64Counter
	name  attribute.KeyValue
}

func newSignals(e *core.Engine, name string, leading func() bool) (*signals, error) {
	m := instruments.NewMeter(e.MeterProvider())
	s := &signals{name: instruments.NameKey.String(name), terms: m.Counter(instruments.LeaderTerms)}
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

func (s *signals) ended(ctx context.Context, o outcome) {
	s.terms.Add(ctx, 1, metric.WithAttributes(s.name, instruments.OutcomeKey.String(string(o))))
}
