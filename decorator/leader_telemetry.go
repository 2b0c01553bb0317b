package decorator

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core"
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
	s, m := &leaderSignals{name: attribute.String("lock.name", name)}, e.MeterProvider().Meter("github.com/lockaround/lockaround/decorator")
	observe := func(_ context.Context, o metric.Int64Observer) error {
		var n int64
		if leading() {
			n = 1
		}
		o.Observe(n, metric.WithAttributes(s.name))
		return nil
	}
	var errs [2]error
	s.terms, errs[0] = m.Int64Counter("lock.leader.terms", metric.WithUnit("{term}"), metric.WithDescription("Terms of this process that have ended, by how."))
	_, errs[1] = m.Int64ObservableGauge("lock.leader.leading", metric.WithUnit("{process}"), metric.WithDescription("1 if this process leads, otherwise 0."), metric.WithInt64Callback(observe))
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("leader telemetry: %w", err)
	}
	return s, nil
}

func (s *leaderSignals) ended(ctx context.Context, o leaderOutcome) {
	s.terms.Add(ctx, 1, metric.WithAttributes(s.name, attribute.String("lock.outcome", string(o))))
}
