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

// jobSignals are the metrics of one job.
type jobSignals struct {
	runs    metric.Int64Counter
	lasted  metric.Float64Histogram
	outcome [JobNotRun + 1]metric.MeasurementOption
}

// newJobSignals makes the metrics of the job of that name, whose status is read when the
// age of its last success is asked for.
func newJobSignals(e *core.Engine, name string, status func() JobStatus) (*jobSignals, error) {
	named := attribute.String("lock.name", name)
	lastSuccess := func(_ context.Context, o metric.Int64Observer) error {
		if at := status().LastSuccess; !at.IsZero() {
			o.Observe(at.Unix(), metric.WithAttributes(named))
		}
		return nil
	}
	s, m := &jobSignals{}, e.MeterProvider().Meter("github.com/lockaround/lockaround/decorator")
	buckets := metric.WithExplicitBucketBoundaries(.01, .1, .5, 1, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800, 21600)
	var errs [3]error
	s.runs, errs[0] = m.Int64Counter("lock.job.runs", metric.WithUnit("{call}"), metric.WithDescription("Calls of a job by this process, by how they ended."))
	s.lasted, errs[1] = m.Float64Histogram("lock.job.duration", metric.WithUnit("s"), metric.WithDescription("Time that the function of a job ran."), buckets)
	_, errs[2] = m.Int64ObservableGauge("lock.job.last_success", metric.WithUnit("s"), metric.WithDescription("When this process last ran the job without an error, as Unix time."), metric.WithInt64Callback(lastSuccess))
	for o := range s.outcome {
		s.outcome[o] = metric.WithAttributeSet(attribute.NewSet(named, attribute.String("lock.outcome", JobOutcome(o).String())))
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, fmt.Errorf("job telemetry: %w", err)
	}
	return s, nil
}

// ran notes a call whose function ran for that long.
func (s *jobSignals) ran(ctx context.Context, o JobOutcome, lasted time.Duration) {
	s.runs.Add(ctx, 1, s.outcome[o])
	s.lasted.Record(ctx, lasted.Seconds(), s.outcome[o])
}

// didNotRun notes a call whose function did not run.
func (s *jobSignals) didNotRun(ctx context.Context, o JobOutcome) {
	s.runs.Add(ctx, 1, s.outcome[o])
}
