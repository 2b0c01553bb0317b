package dashboards

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// exported is a service whose metrics are served to Prometheus, and whose spans are kept.
type exported struct {
	meters  metric.MeterProvider
	tracers *sdktrace.TracerProvider
	spans   *tracetest.SpanRecorder
	server  *httptest.Server // of /metrics
}

func export(t *testing.T) *exported {
	t.Helper()
	registry := client.NewRegistry()
	exporter, err := prometheus.New(prometheus.WithRegisterer(registry))
	if err != nil {
		t.Fatal(err)
	}
	e := &exported{meters: sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)), spans: tracetest.NewSpanRecorder()}
	e.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(e.spans))
	e.server = httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.Cleanup(e.server.Close)
	return e
}

// engine is one of the service on that store.
func (e *exported) engine(t *testing.T, store driver.Driver) *core.Engine {
	t.Helper()
	locks, err := core.New(store, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)),
		core.WithMeterProvider(e.meters), core.WithTracerProvider(e.tracers))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locks.Close() })
	return locks
}

// load is a workload in which all happens that a panel shows.
type load struct {
	t     *testing.T
	ctx   context.Context
	work  sync.WaitGroup
	store *memlock.Driver
	locks *core.Engine
}

// begin starts the workload, which ends with the test.
func (e *exported) begin(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{t: t, ctx: ctx, store: memlock.New()}
	l.locks = e.engine(t, l.store)
	t.Cleanup(l.work.Wait)
	t.Cleanup(cancel)
	l.locking()
	l.failing(e)
	l.quorum(e)
	l.queue()
	l.cache()
	l.idempotent()
	l.job()
	l.leader()
}

// again calls f until the workload ends.
func (l *load) again(pause time.Duration, f func()) {
	l.work.Go(func() {
		for l.ctx.Err() == nil {
			f()
			select {
			case <-time.After(pause):
			case <-l.ctx.Done():
			}
		}
	})
}
