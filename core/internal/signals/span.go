package signals

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Span is a span of a lock. The zero value is none: all that it is told is dropped.
type Span struct{ span trace.Span }

// End ends the span with how it went.
func (s Span) End(o Outcome) {
	if s.span == nil {
		return
	}
	if s.span.IsRecording() {
		s.span.SetAttributes(attribute.String("lock.outcome", o.String()))
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

// Within returns ctx as the parent of the spans of the guarded call.
func (s Span) Within(ctx context.Context) context.Context {
	if s.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.span)
}
