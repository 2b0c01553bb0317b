package core

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core/internal/signals"
)

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

// prepare gives a plan its signals, once its name is known.
func (e *Engine) prepare(pl *plan) { pl.signals = e.signals.Of(pl.Name, pl.Mode.String()) }

// outcomes of failures, as they stand in telemetry.
var outcomes = []struct {
	kind error
	is   signals.Outcome
}{
	{ErrBusy, signals.Busy},
	{ErrTimeout, signals.Timeout},
	{ErrUnavailable, signals.Unavailable},
	{ErrClosed, signals.Closed},
	{context.Canceled, signals.Canceled},
	{context.DeadlineExceeded, signals.DeadlineExceeded},
	{ErrLost, signals.Lost},
	{ErrMaxHold, signals.MaxHold},
}

// outcome names how err ended an acquisition or a hold; well if it is nil.
func outcome(err error, well signals.Outcome) signals.Outcome {
	if err == nil {
		return well
	}
	var e *Error
	if errors.As(err, &e) {
		err = e.Kind
	}
	for _, o := range outcomes {
		if o.kind == err {
			return o.is
		}
	}
	return signals.Failed
}

// countRelease notes that the caller of a hold gave it back, and why it had ended before if it had.
func (h *hold) countRelease(ctx context.Context, now instant, err error) {
	h.plan.signals.Released(ctx, h.span, now.since(h.since), outcome(err, signals.Released))
}
