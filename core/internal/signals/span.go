package signals

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core/instruments"
)

// Span is a span of a lock. The zero value is none: all that it is told is dropped.
type Span struct{ span trace.Span }

// End ends the span with how it went.
func (s Span) End(o Outcome) {
	if s.span == nil {
		return
	}
	if s.span.IsRecording() {
		s.span.SetAttributes(instruments.OutcomeKey.String(o.String()))
		if o != Acquired && o != Released {
			s.span.SetAttributes(attribute.String("error.type", o.String()))
			s.span.SetStatus(codes.Error, o.String())
		}
	}
	s.span.End()
}

// Token notes the fencing token.
func (s Span) Token(t int64) {
	if s.span != nil && s.span.IsRecording() {
		s.span.SetAttributes(attribute.Int64("lock.token", t))
	}
}

// Trace names a span of this process or of another one.
type Trace struct {
	TraceID [16]byte
	SpanID  [8]byte
	Flags   byte
}

// Trace names the span; nil if it is not sampled.
func (s Span) Trace() *Trace {
	if s.span == nil {
		return nil
	}
	c := s.span.SpanContext()
	if !c.IsSampled() {
		return nil
	}
	return &Trace{c.TraceID(), c.SpanID(), byte(c.TraceFlags())}
}

// Behind notes the identity of who holds the lock that the span waits for, unless that is
// empty, and links the span to the holder's, unless that is nil.
func (s Span) Behind(identity string, holder *Trace) {
	if s.span == nil || !s.span.IsRecording() {
		return
	}
	var about []attribute.KeyValue
	if identity != "" {
		about = append(about, attribute.String("lock.holder", identity))
		s.span.SetAttributes(about...)
	}
	// Spans can be linked after they have begun from version 1.25.0 of OpenTelemetry on.
	if linked, ok := s.span.(interface{ AddLink(trace.Link) }); ok && holder != nil {
		linked.AddLink(trace.Link{
			SpanContext: trace.NewSpanContext(trace.SpanContextConfig{
				TraceID: holder.TraceID, SpanID: holder.SpanID, TraceFlags: trace.TraceFlags(holder.Flags), Remote: true,
			}),
			Attributes: about,
		})
	}
}

// Within returns ctx as the parent of the spans of the guarded call.
func (s Span) Within(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}
