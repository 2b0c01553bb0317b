package instruments

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Meter makes instruments of the table. It collects what goes wrong for [Meter.Err], so that instruments
// are made one after the other and what failed is asked once. It is not safe for concurrent use.
type Meter struct {
	provider metric.MeterProvider
	errs     []error
}

// NewMeter returns a meter whose instruments go to that provider; nil is OpenTelemetry's global one.
func NewMeter(p metric.MeterProvider) *Meter {
	if p == nil {
		p = otel.GetMeterProvider()
	}
	return &Meter{provider: p}
}

// Err returns what the meter could not make; nil if it made all.
func (m *Meter) Err() error {
	if err := errors.Join(m.errs...); err != nil {
		return fmt.Errorf("lock telemetry: %w", err)
	}
	return nil
}

// of returns the meter of an instrument, which must be of that kind.
func (m *Meter) of(i Instrument, kind Kind) metric.Meter {
	if i.Kind != kind {
		m.note(i, fmt.Errorf("it is a %v, and no %v", i.Kind, kind))
	}
	return m.provider.Meter(i.Scope)
}

func (m *Meter) note(i Instrument, err error) {
	if err != nil {
		m.errs = append(m.errs, fmt.Errorf("instrument %s: %w", i.Name, err))
	}
}

// Counter makes an instrument that is a [Counter].
func (m *Meter) Counter(i Instrument) metric.Int64Counter {
	c, err := m.of(i, Counter).Int64Counter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
	m.note(i, err)
	return c
}

// UpDownCounter makes an instrument that is an [UpDownCounter].
func (m *Meter) UpDownCounter(i Instrument) metric.Int64UpDownCounter {
	c, err := m.of(i, UpDownCounter).Int64UpDownCounter(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
	m.note(i, err)
	return c
}

// Histogram makes an instrument that is a [Histogram].
func (m *Meter) Histogram(i Instrument) metric.Float64Histogram {
	h, err := m.of(i, Histogram).Float64Histogram(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description),
		metric.WithExplicitBucketBoundaries(i.Buckets...))
	m.note(i, err)
	return h
}

// Gauge makes an instrument that is a [Gauge], of whole numbers.
func (m *Meter) Gauge(i Instrument) metric.Int64ObservableGauge {
	g, err := m.of(i, Gauge).Int64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
	m.note(i, err)
	return g
}

// FloatGauge makes an instrument that is a [Gauge], of other numbers.
func (m *Meter) FloatGauge(i Instrument) metric.Float64ObservableGauge {
	g, err := m.of(i, Gauge).Float64ObservableGauge(i.Name, metric.WithUnit(i.Unit), metric.WithDescription(i.Description))
	m.note(i, err)
	return g
}

// Observe registers a callback for gauges of one scope. The registration is nil if that or one of the
// instruments before has failed: a callback must not observe an instrument that is not there.
func (m *Meter) Observe(scope string, f metric.Callback, gauges ...metric.Observable) metric.Registration {
	if len(m.errs) > 0 {
		return nil
	}
	r, err := m.provider.Meter(scope).RegisterCallback(f, gauges...)
	if err != nil {
		m.errs = append(m.errs, err)
	}
	return r
}
