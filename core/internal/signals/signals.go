// Package signals is what an engine says of its locks in spans and metrics. It is told
// durations, tokens and outcomes, and knows nothing of the engine. Key values and owners never
// enter it.
package signals

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core/instruments"
)

const scope = "github.com/lockaround/lockaround/core"

// Outcome says how an acquisition or a hold ended. The zero value is none.
type Outcome uint8

// The outcomes.
const (
	Acquired Outcome = iota + 1
	Released
	Busy
	Timeout
	Unavailable
	Closed
	Canceled
	DeadlineExceeded
	Lost
	MaxHold
	Full
	Failed // in a way that has no name
)

var outcomes = [...]string{
	Acquired: "acquired", Released: "released", Busy: "busy", Timeout: "timeout", Unavailable: "unavailable", Closed: "closed",
	Canceled: "canceled", DeadlineExceeded: "deadline_exceeded", Lost: "lost", MaxHold: "max_hold", Full: "full", Failed: "error",
}

// String returns the outcome as spans and metrics name it.
func (o Outcome) String() string { return outcomes[o] }

// Signals are the spans and metrics of an engine. They are safe for concurrent use.
type Signals struct {
	tracer   trace.Tracer
	unset    trace.TracerProvider // OpenTelemetry's global one while nobody has set any
	silent   bool                 // the provider is a no-op
	driver   string
	waited   metric.Float64Histogram
	heldFor  metric.Float64Histogram
	held     metric.Int64UpDownCounter
	waiting  metric.Int64UpDownCounter
	lost     metric.Int64Counter
	handoff  metric.Int64Counter
	policies sync.Map // of policyKey to *Policy
}

// New returns the signals of an engine on a driver of that name. A nil tp is OpenTelemetry's
// global provider.
func New(tp trace.TracerProvider, mp metric.MeterProvider, driver string) (*Signals, error) {
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	s := &Signals{tracer: tp.Tracer(scope), driver: driver}
	if _, s.silent = tp.(noop.TracerProvider); isUnset(tp) {
		s.unset = tp
	}
	m := instruments.NewMeter(mp)
	s.waited, s.heldFor = m.Histogram(instruments.WaitDuration), m.Histogram(instruments.HoldDuration)
	s.held, s.waiting = m.UpDownCounter(instruments.Held), m.UpDownCounter(instruments.Waiting)
	s.lost, s.handoff = m.Counter(instruments.Lost), m.Counter(instruments.HandOff)
	return s, m.Err()
}

// isUnset reports whether tp is what OpenTelemetry has for a global provider until one
// is set. What that makes are no-ops with a cost.
func isUnset(tp trace.TracerProvider) bool {
	t := reflect.TypeOf(tp)
	return t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "go.opentelemetry.io/otel/internal/global"
}

// Operation begins the span of an operation that has no policy.
func (s *Signals) Operation(ctx context.Context, op string) (context.Context, Span) {
	ctx, sp := s.tracer.Start(ctx, "lock "+op, trace.WithAttributes(instruments.DriverKey.String(s.driver)))
	return ctx, Span{sp}
}

// Policy is the signals of one policy, prepared.
type Policy struct {
	*Signals
	acquire, hold, release string // names of the spans
	attrs                  []trace.SpanStartOption
	base                   []metric.AddOption
	outcomes               [len(outcomes)][]metric.RecordOption
}

type policyKey struct{ name, mode string }

// Of returns the signals of a policy.
func (s *Signals) Of(name, mode string) *Policy {
	k := policyKey{name, mode}
	if p, ok := s.policies.Load(k); ok {
		return p.(*Policy)
	}
	suffix := ""
	if name != "" {
		suffix = " " + name
	}
	attrs := []attribute.KeyValue{
		instruments.NameKey.String(name),
		instruments.DriverKey.String(s.driver),
		instruments.ModeKey.String(mode),
	}
	p := &Policy{
		Signals: s,
		acquire: "lock acquire" + suffix, hold: "lock hold" + suffix, release: "lock release" + suffix,
		attrs: []trace.SpanStartOption{trace.WithAttributes(attrs...)},
		base:  []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(attrs...))},
	}
	for o := Acquired; o <= Failed; o++ {
		with := append(slices.Clone(attrs), instruments.OutcomeKey.String(o.String()))
		p.outcomes[o] = []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(with...))}
	}
	got, known := s.policies.LoadOrStore(k, p)
	if !known {
		// A counter that begins with its first loss has not risen by it, for a store that compares values.
		p.lost.Add(context.Background(), 0, p.base...)
		p.handoff.Add(context.Background(), 0, p.base...)
	}
	return got.(*Policy)
}

// Acquire begins the span of an acquisition.
func (p *Policy) Acquire(ctx context.Context) (context.Context, Span) { return p.start(ctx, p.acquire) }

// Hold begins the span of a hold, in ctx, after that of its acquisition.
func (p *Policy) Hold(ctx context.Context, acquisition Span) Span {
	_, sp := p.follow(ctx, acquisition, p.hold)
	return sp
}

// Release begins the span of a release, after that of its hold.
func (p *Policy) Release(ctx context.Context, hold Span) (context.Context, Span) {
	return p.follow(ctx, hold, p.release)
}

// Granted notes that a caller got the lock, and ends the span of the acquisition.
func (p *Policy) Granted(ctx context.Context, sp Span, waited time.Duration, token int64) {
	p.waited.Record(ctx, waited.Seconds(), p.outcomes[Acquired]...)
	p.held.Add(ctx, 1, p.base...)
	sp.Token(token)
	if sp.span != nil && sp.span.IsRecording() {
		sp.span.SetAttributes(attribute.Float64("lock.wait", waited.Seconds()))
	}
	sp.End(Acquired)
}

// Refused notes that a caller did not get the lock, and ends the span of the acquisition.
func (p *Policy) Refused(ctx context.Context, sp Span, waited time.Duration, o Outcome) {
	p.waited.Record(ctx, waited.Seconds(), p.outcomes[o]...)
	sp.End(o)
}

// Released notes that a caller gave the lock back, and ends the span of the hold.
func (p *Policy) Released(ctx context.Context, sp Span, held time.Duration, o Outcome) {
	p.heldFor.Record(ctx, held.Seconds(), p.outcomes[o]...)
	p.held.Add(ctx, -1, p.base...)
	sp.End(o)
}

// Waiting adds to the callers that wait.
func (p *Policy) Waiting(ctx context.Context, n int64) { p.waiting.Add(ctx, n, p.base...) }

// Lost notes that a lock ended before its holder released it.
func (p *Policy) Lost(ctx context.Context) { p.lost.Add(ctx, 1, p.base...) }

// HandedOn notes that a caller got the lock from another one of the process.
func (p *Policy) HandedOn(ctx context.Context) { p.handoff.Add(ctx, 1, p.base...) }

func (p *Policy) start(ctx context.Context, name string) (context.Context, Span) {
	if p.silent || p.unset != nil && otel.GetTracerProvider() == p.unset {
		return ctx, Span{}
	}
	ctx, sp := p.tracer.Start(ctx, name, p.attrs...)
	if !sp.SpanContext().IsValid() {
		return ctx, Span{} // nobody traces
	}
	return ctx, Span{sp}
}

// follow begins a span after another one of the same lock.
func (p *Policy) follow(ctx context.Context, before Span, name string) (context.Context, Span) {
	if before.span == nil {
		return ctx, Span{}
	}
	return p.start(ctx, name)
}
