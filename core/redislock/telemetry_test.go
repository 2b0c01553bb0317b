package redislock_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/examples/stock/stocktest"
)

// serve opens the entrances of a service with locks of this Wait around call. Each request
// has a span.
func serve(t *testing.T, locks *core.Engine, tracer trace.Tracer, wait time.Duration, call func(context.Context) error) stocktest.Addresses {
	t.Helper()
	s, err := stocktest.Serve(locks, core.Policy{Wait: wait, TTL: lasting}, func(ctx context.Context) (context.Context, func()) {
		ctx, span := tracer.Start(ctx, "request")
		return ctx, func() { span.End() }
	}, func(ctx context.Context, _ stocktest.Deduction) (stocktest.Sale, error) {
		return stocktest.Sale{}, call(ctx)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Addresses
}

// telemetry is what an engine's spans and metrics have told.
type telemetry struct {
	t        *testing.T
	exporter *tracetest.InMemoryExporter
	reader   *metric.ManualReader
	text     strings.Builder // of all of it
}

// spans returns the spans since the last call by their names, which have to form
// this tree: each is written with its parent after it.
func (s *telemetry) spans(want ...string) map[string]tracetest.SpanStub {
	s.t.Helper()
	all := s.exporter.GetSpans()
	s.exporter.Reset()
	fmt.Fprintf(&s.text, "%+v\n", all)
	names, byName := map[trace.SpanID]string{}, map[string]tracetest.SpanStub{}
	for _, span := range all {
		names[span.SpanContext.SpanID()] = span.Name
		byName[span.Name] = span
	}
	var got []string
	for _, span := range all {
		got = append(got, strings.TrimSuffix(span.Name+" < "+names[span.Parent.SpanID()], " < "))
		if span.SpanKind != trace.SpanKindInternal {
			s.t.Errorf("span %q is of kind %v", span.Name, span.SpanKind)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		s.t.Errorf("spans\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
	return byName
}

// metrics returns the sums, and the counts of histograms by their outcome.
func (s *telemetry) metrics() map[string]int64 {
	s.t.Helper()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(s.t.Context(), &all); err != nil {
		s.t.Fatal(err)
	}
	got := map[string]int64{}
	note := func(name string, set attribute.Set, n int64) {
		fmt.Fprintln(&s.text, name, set.Encoded(attribute.DefaultEncoder()))
		if outcome, ok := set.Value("lock.outcome"); ok {
			name += " " + outcome.AsString()
		}
		got[name] += n
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					note(m.Name, p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					note(m.Name, p.Attributes, int64(p.Count))
				}
			}
		}
	}
	return got
}

// wantAttributes checks the attributes of a span by their text.
func wantAttributes(t *testing.T, span tracetest.SpanStub, want map[string]string) {
	t.Helper()
	got := map[string]string{}
	for _, a := range span.Attributes {
		got[string(a.Key)] = a.Value.Emit()
	}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("span %q has %s = %q, want %q", span.Name, key, got[key], value)
		}
	}
}

func TestEverySurfaceTracesAndCountsItsLockAndTellsNoKey(t *testing.T) {
	server := testservers.Redis(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = rdb.Close() }()
	seen := &telemetry{t: t, exporter: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(seen.exporter))
	locks := engineOn(t, server.Addr(), core.WithTracerProvider(tracers),
		core.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(seen.reader))))
	other := engineOn(t, server.Addr()) // of another process
	tracer := tracers.Tracer("test")
	work := make(chan func(context.Context) error, 2) // of the calls to come
	call := func(ctx context.Context) error {
		ctx, span := tracer.Start(ctx, "call")
		defer span.End()
		return (<-work)(ctx)
	}
	hasty := serve(t, locks, tracer, 0, call)
	patient := serve(t, locks, tracer, core.Forever, call)

	// A lock that is free.
	entrances := len(stocktest.Entrances)
	owners := make(chan string, entrances)
	for _, s := range stocktest.Entrances {
		work <- func(ctx context.Context) error {
			lease, _ := core.LeaseFrom(ctx)
			trace.SpanFromContext(ctx).SetAttributes(attribute.Int64("token", lease.Token()))
			owners <- rdb.GetRange(ctx, rdb.Keys(ctx, "la2:*:*").Val()[0], 0, 15).Val()
			return nil
		}
		if word := s.Buy(t.Context(), hasty); word != "sold" {
			t.Fatalf("%s: a free lock: %s", s.Lock, word)
		}
		spans := seen.spans("request", "lock acquire "+s.Lock+" < request",
			"lock hold "+s.Lock+" < request", "call < lock hold "+s.Lock, "lock release "+s.Lock+" < request")
		call := spans["call"].Attributes
		if len(call) != 1 || call[0].Value.AsInt64() == 0 {
			t.Fatalf("%s: the call had no token", s.Lock)
		}
		attributes := map[string]string{
			"lock.name": s.Lock, "lock.driver": "redis", "lock.mode": "exclusive", "lock.outcome": "acquired",
			"lock.token": call[0].Value.Emit(), "error.type": "",
		}
		wantAttributes(t, spans["lock acquire "+s.Lock], attributes)
		attributes["lock.outcome"] = "released"
		wantAttributes(t, spans["lock hold "+s.Lock], attributes)
		wantAttributes(t, spans["lock release "+s.Lock], map[string]string{"lock.outcome": "released", "error.type": ""})
	}

	// A lock that another process holds.
	lease, err := other.Acquire(t.Context(), core.Policy{Key: "stock:" + stocktest.SKU})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range stocktest.Entrances {
		if word := s.Buy(t.Context(), hasty); word != "busy" {
			t.Fatalf("%s: a held lock: %q", s.Lock, word)
		}
		acquire := seen.spans("request", "lock acquire "+s.Lock+" < request")["lock acquire "+s.Lock]
		wantAttributes(t, acquire, map[string]string{"lock.outcome": "busy", "error.type": "busy", "lock.token": ""})
		if acquire.Status.Code != otelcodes.Error {
			t.Errorf("%s: the span of a refused call has status %v", s.Lock, acquire.Status)
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A lock that the server loses while it is held.
	for _, s := range stocktest.Entrances {
		work <- func(ctx context.Context) error {
			if err := rdb.FlushAll(ctx).Err(); err != nil {
				return err
			}
			// With a fresh subscription the process asks after its leases.
			if err := rdb.ClientKillByFilter(ctx, "TYPE", "pubsub").Err(); err != nil {
				return err
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if word := s.Buy(t.Context(), patient); word != "lost" {
			t.Fatalf("%s: a lost lock: %q", s.Lock, word)
		}
		hold := seen.spans("request", "lock acquire "+s.Lock+" < request",
			"lock hold "+s.Lock+" < request", "call < lock hold "+s.Lock)["lock hold "+s.Lock]
		wantAttributes(t, hold, map[string]string{"lock.outcome": "lost", "error.type": "lost"})
	}

	// A lock that is handed from one surface to the next. After more than a second
	// of waiting the process asks the server first, which is no hand-off.
	granted, want := int64(2*entrances), map[string]int64{}
	for want["lock.handoff"] == 0 {
		leave := make(chan struct{})
		work <- func(context.Context) error { <-leave; return nil }
		work <- func(context.Context) error { return nil }
		words := make(chan string, 2)
		for _, s := range stocktest.Entrances[:2] {
			go func() { words <- s.Buy(t.Context(), patient) }()
		}
		for limit := bounded(t); ; {
			if m := seen.metrics(); m["lock.held"] == 1 && m["lock.waiting"] == 1 {
				break
			}
			if limit.Err() != nil {
				t.Fatalf("of two at once one does not hold and one wait: %v", seen.metrics())
			}
			runtime.Gosched()
		}
		close(leave)
		for range 2 {
			if word := <-words; word != "sold" {
				t.Fatalf("of two at once: %s", word)
			}
		}
		granted += 2
		want["lock.handoff"] = seen.metrics()["lock.handoff"]
	}
	fmt.Fprintf(&seen.text, "%+v\n", seen.exporter.GetSpans())

	lost := int64(entrances)
	want["lock.lost"], want["lock.held"], want["lock.waiting"] = lost, 0, 0
	want["lock.wait.duration acquired"], want["lock.wait.duration busy"] = granted, lost
	want["lock.hold.duration released"], want["lock.hold.duration lost"] = granted-lost, lost
	got := seen.metrics()
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s is %d, want %d", name, got[name], n)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is %d, want no such metric", name, got[name])
		}
	}
	for range entrances {
		owner := <-owners
		for _, secret := range []string{owner, hex.EncodeToString([]byte(owner)), stocktest.SKU} {
			if secret == "" || strings.Contains(seen.text.String(), secret) {
				t.Errorf("telemetry tells %q", secret)
			}
		}
	}
}
