package job

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
)

// signals are the metrics of one job.
type signals struct {
	runs    metric.Int64Counter
	lasted  metric.Float64Histogram
	outcome [NotRun + 1]metric.MeasurementOption
}

// newSignals makes the metrics of the job of that name, whose status is read when the
// age of its last success is asked for.
func newSignals(e *core.Engine, name string, status func() Status) (*signals, error) {
	named := instruments.NameKey.String(name)
	m := instruments.NewMeter(e.MeterProvider())
	s := &signals{runs: m.Counter(instruments.JobRuns), lasted: m.Histogram(instruments.JobDuration)}
	success := m.Gauge(instruments.JobLastSuccess)
	m.Observe(instruments.JobLastSuccess.Scope, func(_ context.Context, o metric.Observer) error {
		if at := status().LastSuccess; !at.IsZero() {
			o.ObserveInt64(success, at.Unix(), metric.WithAttributes(named))
		}
		return nil
	}, success)
	for o := range s.outcome {
		s.outcome[o] = metric.WithAttributeSet(attribute.NewSet(named, instruments.OutcomeKey.String(Outcome(o).String())))
	}
	return s, m.Err()
}

// ran notes a call whose function ran for that long.
func (s *signals) ran(ctx context.Context, o Outcome, lasted time.Duration) {
	s.runs.Add(ctx, 1, s.outcome[o])
	s.lasted.Record(ctx, lasted.Seconds(), s.outcome[o])
}

// didNotRun notes a call whose function did not run.
func (s *signals) didNotRun(ctx context.Context, o Outcome) {
	s.runs.Add(ctx, 1, s.outcome[o])
}
