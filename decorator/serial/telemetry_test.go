package serial_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// collected is what a reader has of the queue's metrics, by name and outcome.
func collected(t *testing.T, r *sdkmetric.ManualReader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if !strings.HasPrefix(m.Name, "lock.queue.") {
				continue
			}
			add := func(name, outcome string, v float64) {
				if name != "refund" {
					t.Errorf("%s has the lock.name %q", m.Name, name)
				}
				got[strings.TrimPrefix(m.Name, "lock.queue.")+" "+outcome] = v
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					name, _ := p.Attributes.Value("lock.name")
					outcome, _ := p.Attributes.Value("lock.outcome")
					add(name.AsString(), outcome.AsString(), float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					name, _ := p.Attributes.Value("lock.name")
					add(name.AsString(), "", float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					name, _ := p.Attributes.Value("lock.name")
					add(name.AsString(), "", p.Value)
				}
			}
		}
	}
	return got
}

func TestQueueTellsOfItsLengthItsRunsAndItsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader, spans := sdkmetric.NewManualReader(), tracetest.NewSpanRecorder()
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithTracerProvider(tracers),
			core.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		f := serial.Must(e, refundPolicy, queue.NewMemory(), func(_ context.Context, r refund) error {
			if r.ID == "dies" {
				return errors.New("no")
			}
			return nil
		}, serial.Policy{OnDead: serial.Hold, Attempts: 2})
		ctx, request := tracers.Tracer("test").Start(t.Context(), "request")
		for order, ids := range map[string][]string{"A": {"1", "2"}, "B": {"dies", "behind"}} {
			for _, id := range ids {
				if _, err := f.Enqueue(ctx, refund{ID: id, OrderID: order}, serial.ItemID(id)); err != nil {
					t.Fatal(err)
				}
			}
		}
		request.End()
		work(t, f)
		time.Sleep(time.Minute)
		got := collected(t, reader)
		for name, want := range map[string]float64{
			"length ": 2, "oldest ": 60, "parked ": 1, "attempts ": 4, "runs done": 2, "runs retry": 1, "runs dead": 1, "dead ": 1,
		} {
			if got[name] != want {
				t.Errorf("%s is %v; want %v", name, got[name], want)
			}
		}
		// Each run is linked to the span of the Enqueue of its request.
		enqueues := make(map[string]bool)
		runs := 0
		for _, s := range spans.Ended() {
			if s.Name() == "serial enqueue refund" && s.SpanContext().TraceID() == request.SpanContext().TraceID() {
				enqueues[s.SpanContext().SpanID().String()] = true
			}
		}
		for _, s := range spans.Ended() {
			if s.Name() != "serial run refund" {
				continue
			}
			runs++
			if len(s.Links()) != 1 || !enqueues[s.Links()[0].SpanContext.SpanID().String()] {
				t.Errorf("a run has the links %v", s.Links())
			}
			for _, a := range s.Attributes() {
				if strings.Contains(a.Value.Emit(), "refund:") {
					t.Errorf("the span has the key: %v", a)
				}
			}
		}
		if len(enqueues) != 4 || runs != 4 {
			t.Errorf("%d spans of requests, %d of runs; want 4 and 4", len(enqueues), runs)
		}
	})
}
