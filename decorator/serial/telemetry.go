package serial

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/instruments"
	"github.com/lockaround/lockaround/decorator/queue"
)

// What has become of a run, beside the names of queue.Outcome.
const (
	superseded = "superseded" // another worker has begun the item meanwhile
	unrecorded = "unrecorded" // the store did not take the record of its end
)

// statsTimeout bounds what a collection of metrics asks the store.
const statsTimeout = time.Second

// signals are the spans and metrics of one serial function.
type signals struct {
	tracer         trace.Tracer
	policy         string
	name           attribute.KeyValue
	attempts, dead metric.Int64Counter
	runs           metric.Int64Counter
	lasted         metric.Float64Histogram
}

func newSignals(e *core.Engine, name string, q queue.Queue) (*signals, error) {
	m := instruments.NewMeter(e.MeterProvider())
	s := &signals{
		tracer: e.TracerProvider().Tracer(instruments.QueueRuns.Scope), policy: name, name: instruments.NameKey.String(name),
		attempts: m.Counter(instruments.QueueAttempts), runs: m.Counter(instruments.QueueRuns), dead: m.Counter(instruments.QueueDead),
		lasted: m.Histogram(instruments.QueueRunDuration),
	}
	length, oldest, parked := m.Gauge(instruments.QueueLength), m.FloatGauge(instruments.QueueOldest), m.Gauge(instruments.QueueParked)
	m.Observe(instruments.QueueLength.Scope, func(ctx context.Context, o metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, statsTimeout)
		defer cancel()
		stats, err := q.Stats(ctx)
		if err != nil {
			return fmt.Errorf("queue of %q: %w", name, err)
		}
		named := metric.WithAttributes(s.name)
		o.ObserveInt64(length, int64(stats.Length), named)
		o.ObserveFloat64(oldest, stats.Oldest.Seconds(), named)
		o.ObserveInt64(parked, int64(stats.Parked), named)
		return nil
	}, length, oldest, parked)
	if err := m.Err(); err != nil {
		return nil, err
	}
	s.dead.Add(context.Background(), 0, metric.WithAttributes(s.name)) // so that the first one is a rise
	return s, nil
}

// enqueues begins the span of an Enqueue.
func (s *signals) enqueues(ctx context.Context) (context.Context, trace.Span) {
	return s.tracer.Start(ctx, "serial enqueue "+s.policy, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(s.name))
}

// begins notes that a run was begun, and begins its span.
func (s *signals) begins(ctx context.Context, token int64, i *queue.Item) (context.Context, trace.Span) {
	s.attempts.Add(ctx, 1, metric.WithAttributes(s.name))
	opts := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithNewRoot(),
		trace.WithAttributes(s.name, attribute.Int64("lock.token", token), attribute.Int("lock.attempt", i.Attempt)),
	}
	if enqueued := spanContext(i.Trace); enqueued.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: enqueued}))
	}
	return s.tracer.Start(ctx, "serial run "+s.policy, opts...)
}

// ended notes how a run has ended.
func (s *signals) ended(ctx context.Context, span trace.Span, outcome string, lasted time.Duration) {
	named := metric.WithAttributes(s.name, instruments.OutcomeKey.String(outcome))
	s.runs.Add(ctx, 1, named)
	s.lasted.Record(ctx, lasted.Seconds(), named)
	span.SetAttributes(instruments.OutcomeKey.String(outcome))
	if outcome != queue.Done.String() {
		span.SetStatus(codes.Error, outcome)
	}
	span.End()
}

func (s *signals) died(ctx context.Context, n int) {
	if n > 0 {
		s.dead.Add(ctx, int64(n), metric.WithAttributes(s.name))
	}
}

const traceHeader = "traceparent"

// traceparent is a span context as an item carries it; empty if there is none.
func traceparent(c trace.SpanContext) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), c), carrier)
	return carrier[traceHeader]
}

// spanContext is what [traceparent] has written; invalid if it is anything else.
func spanContext(text string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceHeader: text})
	return trace.SpanContextFromContext(ctx)
}
