package core_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestSpansFollowTheCall(t *testing.T) {
	exp := tracetest.NewInMemoryExporter()
	tp := trace.NewTracerProvider(trace.WithSyncer(exp))
	d := memlock.New()
	e := open(t, d, core.WithTracerProvider(tp))
	tracer := tp.Tracer("test")
	ctx, request := tracer.Start(t.Context(), "request")
	p := core.Policy{Key: "stock:secret", Name: "stock:{sku}"}
	mustBe(t, e.Do(ctx, p, func(ctx context.Context) error {
		_, s := tracer.Start(ctx, "query")
		s.End()
		_, err := e.Acquire(core.Detach(ctx), p)
		mustBe(t, err, core.ErrBusy)
		return nil
	}), nil)
	request.End()

	spans := map[string]tracetest.SpanStub{}
	for _, s := range exp.GetSpans() {
		if s.Status.Code == codes.Error {
			s.Name += " failed"
		}
		spans[s.Name] = s
		for _, a := range s.Attributes {
			if strings.Contains(a.Value.Emit(), "secret") {
				t.Errorf("span %q tells the key in %s", s.Name, a.Key)
			}
		}
	}
	parents := map[string]string{
		"lock acquire stock:{sku}": "request", "lock hold stock:{sku}": "request", "lock release stock:{sku}": "request",
		"query": "lock hold stock:{sku}", "lock acquire stock:{sku} failed": "lock hold stock:{sku}",
	}
	for name, parent := range parents {
		s, ok := spans[name]
		if !ok {
			t.Errorf("no span %q", name)
		} else if s.Parent.SpanID() != spans[parent].SpanContext.SpanID() {
			t.Errorf("span %q is not under %q", name, parent)
		}
	}
	if len(spans) != len(parents)+1 {
		t.Errorf("%d spans, want %d", len(spans), len(parents)+1)
	}
	attrs := map[string]string{}
	for _, a := range spans["lock acquire stock:{sku}"].Attributes {
		attrs[string(a.Key)] = a.Value.Emit()
	}
	for k, want := range map[string]string{"lock.name": "stock:{sku}", "lock.driver": "memory", "lock.mode": "exclusive", "lock.outcome": "acquired"} {
		if attrs[k] != want {
			t.Errorf("attribute %s is %q, want %q", k, attrs[k], want)
		}
	}
	if attrs["lock.token"] == "" || attrs["lock.wait"] == "" {
		t.Errorf("attributes %v lack lock.token or lock.wait", attrs)
	}
}

func TestMetricsCountWhatHappened(t *testing.T) {
	reader := metric.NewManualReader()
	d := memlock.New()
	e := open(t, d, core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	p := core.Policy{Key: "k", Name: "stock", Wait: core.Forever}
	var wg sync.WaitGroup
	inside := make(chan struct{}, 3)
	leave := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			_ = e.Do(t.Context(), p, func(context.Context) error {
				inside <- struct{}{}
				<-leave
				return nil
			})
		})
	}
	<-inside
	read := func() map[string]int64 {
		var rm metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &rm); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for _, sm := range rm.ScopeMetrics {
			for _, m := range sm.Metrics {
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						got[m.Name] += p.Value
					}
				case metricdata.Histogram[float64]:
					for _, p := range data.DataPoints {
						outcome, _ := p.Attributes.Value("lock.outcome")
						got[m.Name+" "+outcome.AsString()] += int64(p.Count)
					}
				}
			}
		}
		return got
	}
	for read()["lock.waiting"] != 2 {
		runtime.Gosched()
	}
	if got := read(); got["lock.held"] != 1 {
		t.Errorf("%d held, want 1", got["lock.held"])
	}
	close(leave)
	wg.Wait()
	_ = e.Do(t.Context(), p, func(ctx context.Context) error {
		d.Expire("test/k")
		<-ctx.Done()
		return nil
	})
	got := read()
	for name, want := range map[string]int64{
		"lock.held": 0, "lock.waiting": 0, "lock.handoff": 2, "lock.lost": 1,
		"lock.wait.duration acquired": 4, "lock.hold.duration released": 3, "lock.hold.duration lost": 1,
	} {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}

// buffer is a bytes.Buffer for several goroutines.
type buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func TestLogTellsOfLeasesThatNobodyReleases(t *testing.T) {
	var log buffer
	e := open(t, memlock.New(), core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	func() { mustAcquire(t, e, core.Policy{Key: "secret", Name: "forgotten"}) }()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), "forgotten"); runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("no word of a lease that was dropped")
		}
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the log tells the key")
	}
	_, err := e.Acquire(t.Context(), core.Policy{Key: "secret"})
	mustBe(t, err, core.ErrBusy)
}

func TestNothingTellsSecrets(t *testing.T) {
	var log buffer
	d := memlock.New()
	e := open(t, d, core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))), core.WithNamespace(""))
	d.Fail(errors.New("dial redis://:hunter2@10.0.0.1"))
	_, err := e.Acquire(t.Context(), core.Policy{Key: "card:4242", Name: "pay"})
	mustBe(t, err, core.ErrUnavailable)
	for _, text := range []string{err.Error(), log.String()} {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "4242") {
			t.Errorf("%q tells a secret", text)
		}
	}
	if !strings.Contains(log.String(), "namespace") {
		t.Error("no word of the empty namespace")
	}
}

func TestMeterProviderIsTheOneGivenOrTheGlobalOne(t *testing.T) {
	own := metric.NewMeterProvider()
	if got := open(t, memlock.New(), core.WithMeterProvider(own)).MeterProvider(); got != own {
		t.Errorf("got %v, want the one given", got)
	}
	if got := open(t, memlock.New()).MeterProvider(); got != otel.GetMeterProvider() {
		t.Errorf("got %v, want the global one", got)
	}
}

// TestLossesAreCountedFromZero keeps the first loss a rise, which is what alerts ask for.
func TestLossesAreCountedFromZero(t *testing.T) {
	reader := metric.NewManualReader()
	e := open(t, memlock.New(), core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))))
	if err := e.Do(t.Context(), core.Policy{Key: "k", Name: "stock"}, func(context.Context) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var rm metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &rm); err != nil {
		t.Fatal(err)
	}
	counted := map[string]int64{}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		if sum, ok := m.Data.(metricdata.Sum[int64]); ok && sum.IsMonotonic {
			for _, p := range sum.DataPoints {
				counted[m.Name] += p.Value
			}
		}
	}
	if want := map[string]int64{"lock.lost": 0, "lock.handoff": 0}; !maps.Equal(counted, want) {
		t.Errorf("after a call without a loss there is %v, want %v", counted, want)
	}
}
