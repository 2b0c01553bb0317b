package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core/driver"
)

const scope = "github.com/lockaround/lockaround/core"

// telemetry is the engine's spans and instruments. Names in it come from
// policies only; key values and owners never enter it.
type telemetry struct {
	tracer  trace.Tracer
	unset   trace.TracerProvider // OpenTelemetry's global one while nobody has set any
	silent  bool                 // the provider is a no-op
	driver  string
	waited  metric.Float64Histogram
	heldFor metric.Float64Histogram
	held    metric.Int64UpDownCounter
	waiting metric.Int64UpDownCounter
	lost    metric.Int64Counter
	handoff metric.Int64Counter
	plans   *sync.Map // of signalKey to *signals
}

func newTelemetry(s *settings, caps driver.Capabilities) (telemetry, error) {
	tp := s.tracers
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	m := s.meterProvider().Meter(scope)
	buckets := metric.WithExplicitBucketBoundaries(.0001, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60)
	t := telemetry{tracer: tp.Tracer(scope), driver: caps.Name, plans: new(sync.Map)}
	if _, t.silent = tp.(noop.TracerProvider); isUnset(tp) {
		t.unset = tp
	}
	var errs [6]error
	t.waited, errs[0] = m.Float64Histogram("lock.wait.duration", metric.WithUnit("s"), metric.WithDescription("Time from asking for a lock to getting it or giving up."), buckets)
	t.heldFor, errs[1] = m.Float64Histogram("lock.hold.duration", metric.WithUnit("s"), metric.WithDescription("Time from getting a lock to releasing it."), buckets)
	t.held, errs[2] = m.Int64UpDownCounter("lock.held", metric.WithUnit("{lock}"), metric.WithDescription("Locks that callers of this process hold."))
	t.waiting, errs[3] = m.Int64UpDownCounter("lock.waiting", metric.WithUnit("{caller}"), metric.WithDescription("Callers of this process that wait for a lock."))
	t.lost, errs[4] = m.Int64Counter("lock.lost", metric.WithUnit("{lock}"), metric.WithDescription("Locks that ended before their holder released them."))
	t.handoff, errs[5] = m.Int64Counter("lock.handoff", metric.WithUnit("{handoff}"), metric.WithDescription("Locks handed on within this process, without the store."))
	if err := errors.Join(errs[:]...); err != nil {
		return t, fmt.Errorf("lock telemetry: %w", err)
	}
	return t, nil
}

// MeterProvider returns where the engine's metrics go, for a surface that has metrics of
// its own: what [WithMeterProvider] set, or OpenTelemetry's global provider. It is never
// nil.
func (e *Engine) MeterProvider() metric.MeterProvider { return e.meterProvider() }

func (s *settings) meterProvider() metric.MeterProvider {
	if s.meters != nil {
		return s.meters
	}
	return otel.GetMeterProvider()
}

// isUnset reports whether tp is what OpenTelemetry has for a global provider until one
// is set. What that makes are no-ops with a cost.
func isUnset(tp trace.TracerProvider) bool {
	t := reflect.TypeOf(tp)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "go.opentelemetry.io/otel/internal/global"
}

// signals is the telemetry of one policy, prepared.
type signals struct {
	*telemetry
	acquire, hold, release string // names of the spans
	attrs                  []trace.SpanStartOption
	base                   []metric.AddOption
	outcomes               map[string][]metric.RecordOption
}

type signalKey struct {
	name string
	mode Mode
}

// The outcomes of a failed acquisition, as they stand in telemetry.
var outcomes = []struct {
	kind error
	name string
}{
	{ErrBusy, "busy"},
	{ErrTimeout, "timeout"},
	{ErrUnavailable, "unavailable"},
	{ErrClosed, "closed"},
	{context.Canceled, "canceled"},
	{context.DeadlineExceeded, "deadline_exceeded"},
	{ErrLost, "lost"},
	{ErrMaxHold, "max_hold"},
}

// The outcome of an acquisition that was granted, of a hold that its holder ended, and
// of what has no name.
const (
	acquired = "acquired"
	released = "released"
	failed   = "error"
)

// outcome names how err ends an acquisition or a hold.
func outcome(err error) string {
	if err == nil {
		return acquired
	}
	var e *Error
	if errors.As(err, &e) {
		err = e.Kind
	}
	for _, o := range outcomes {
		if o.kind == err {
			return o.name
		}
	}
	return failed
}

// prepare gives a plan its signals, once its name is known.
func (e *Engine) prepare(pl *plan) {
	k := signalKey{pl.Name, pl.Mode}
	if s, ok := e.signal.plans.Load(k); ok {
		pl.signals = s.(*signals)
		return
	}
	suffix := ""
	if pl.Name != "" {
		suffix = " " + pl.Name
	}
	attrs := []attribute.KeyValue{
		attribute.String("lock.name", pl.Name),
		attribute.String("lock.driver", e.caps.Name),
		attribute.String("lock.mode", pl.Mode.String()),
	}
	s := &signals{
		telemetry: &e.signal,
		acquire:   "lock acquire" + suffix, hold: "lock hold" + suffix, release: "lock release" + suffix,
		attrs:    []trace.SpanStartOption{trace.WithAttributes(attrs...)},
		base:     []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attrs...))},
		outcomes: map[string][]metric.RecordOption{},
	}
	names := []string{acquired, released, failed}
	for _, o := range outcomes {
		names = append(names, o.name)
	}
	for _, name := range names {
		with := append(slices.Clone(attrs), attribute.String("lock.outcome", name))
		s.outcomes[name] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(with...))}
	}
	got, _ := e.signal.plans.LoadOrStore(k, s)
	pl.signals = got.(*signals)
}

// span is a span of ours; the zero value is none.
type span struct{ trace.Span }

func (s *signals) start(ctx context.Context, name string) (context.Context, span) {
	if s.silent || s.unset != nil && otel.GetTracerProvider() == s.unset {
		return ctx, span{}
	}
	ctx, sp := s.tracer.Start(ctx, name, s.attrs...)
	if !sp.SpanContext().IsValid() {
		return ctx, span{} // nobody traces
	}
	return ctx, span{sp}
}

// follow begins a span after another one of the same lock.
func (s *signals) follow(ctx context.Context, before span, name string) (context.Context, span) {
	if before.Span == nil {
		return ctx, span{}
	}
	return s.start(ctx, name)
}

// end ends the span with how it went.
func (s span) end(o string, err error) {
	if s.Span == nil {
		return
	}
	if s.IsRecording() {
		s.SetAttributes(attribute.String("lock.outcome", o))
		if err != nil {
			s.SetAttributes(attribute.String("error.type", o))
			s.SetStatus(codes.Error, o)
		}
	}
	s.Span.End()
}

// token notes the fencing token.
func (s span) token(t int64) {
	if s.Span != nil && s.IsRecording() {
		s.SetAttributes(attribute.Int64("lock.token", t))
	}
}

// within returns ctx as the parent of the spans of the guarded call.
func (s span) within(ctx context.Context) context.Context {
	if s.Span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.Span)
}

// granted notes that a caller got the lock after it asked for it at start.
func (s *signals) granted(ctx context.Context, sp span, start time.Time, h *hold) {
	s.waited.Record(ctx, h.since.since(at(start)).Seconds(), s.outcomes[acquired]...)
	s.held.Add(ctx, 1, s.base...)
	sp.token(h.token())
	if sp.Span != nil && sp.IsRecording() {
		sp.SetAttributes(attribute.Float64("lock.wait", h.since.since(at(start)).Seconds()))
	}
	sp.end(acquired, nil)
}

// refused notes that a caller did not get the lock.
func (s *signals) refused(ctx context.Context, sp span, start time.Time, err error) {
	s.waited.Record(ctx, time.Since(start).Seconds(), s.outcomes[outcome(err)]...)
	sp.end(outcome(err), err)
}

// released notes that a caller gave the lock back, and why its hold had ended
// before if it had.
func (s *signals) released(ctx context.Context, h *hold, now time.Time, err error) {
	s.heldFor.Record(ctx, at(now).since(h.since).Seconds(), s.outcomes[outcomeOfHold(err)]...)
	s.held.Add(ctx, -1, s.base...)
	h.span.end(outcomeOfHold(err), err)
}

func outcomeOfHold(err error) string {
	if err == nil {
		return released
	}
	return outcome(err)
}
