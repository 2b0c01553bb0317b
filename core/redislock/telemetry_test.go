package redislock_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/stock/stockpb"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/middleware"
)

// tracedSKU is in the key, and must not be in any telemetry.
const tracedSKU = "sku-4711"

// surface is one way of putting a lock around a call.
type surface struct {
	name string        // of the lock
	send func() string // makes one request and returns the reason why the lock has failed it
}

// surfaces puts locks with this Wait around call, on every surface. Each request
// has a span, below that of its caller's if the surface is a function.
func surfaces(t *testing.T, locks *core.Engine, tracer trace.Tracer, wait time.Duration, call func(context.Context) error) []surface {
	t.Helper()
	policy := func(key string) core.Policy { return core.Policy{Key: key, Wait: wait, TTL: lasting} }

	router := gin.New()
	router.POST("/products/:sku/deduct", func(c *gin.Context) {
		ctx, span := tracer.Start(c.Request.Context(), "request")
		defer span.End()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
	}, middleware.Lock(locks, policy("stock:{path.sku}")), func(c *gin.Context) { _ = call(c.Request.Context()) })
	web := httptest.NewServer(router)
	t.Cleanup(web.Close)

	li := interceptor.New(locks, interceptor.Rules{stockpb.Stock_Deduct_FullMethodName: policy("stock:{sku}")})
	rpc := grpc.NewServer(grpc.ChainUnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			ctx, span := tracer.Start(ctx, "request")
			defer span.End()
			return handler(ctx, req)
		}, li.UnaryServer()))
	stockpb.RegisterStockServer(rpc, tracedStock{call: call})
	if err := li.Validate(rpc); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- rpc.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		rpc.GracefulStop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})

	type deduction struct{ SKU string }
	function := decorator.WithLockErr(locks, policy("stock:{SKU}"), func(ctx context.Context, _ deduction) error { return call(ctx) })
	return []surface{
		{"stock:{path.sku}", func() string {
			resp, err := web.Client().Post(web.URL+"/products/"+tracedSKU+"/deduct", "", http.NoBody)
			if err != nil {
				return err.Error()
			}
			defer func() { _ = resp.Body.Close() }()
			var problem struct{ Code string }
			_ = json.NewDecoder(resp.Body).Decode(&problem) // success has no body
			return problem.Code
		}},
		{"stock:{sku}", func() string {
			_, err := stockpb.NewStockClient(conn).Deduct(context.Background(), &stockpb.DeductRequest{Sku: tracedSKU})
			for _, detail := range status.Convert(err).Details() {
				if info, ok := detail.(*errdetails.ErrorInfo); ok {
					return info.GetReason()
				}
			}
			return reasonOf(err)
		}},
		{"stock:{SKU}", func() string {
			ctx, span := tracer.Start(context.Background(), "request")
			defer span.End()
			return reasonOf(function(ctx, deduction{tracedSKU}))
		}},
	}
}

type tracedStock struct {
	stockpb.UnimplementedStockServer
	call func(context.Context) error
}

func (s tracedStock) Deduct(ctx context.Context, _ *stockpb.DeductRequest) (*stockpb.Receipt, error) {
	if err := s.call(ctx); err != nil {
		return nil, ctx.Err()
	}
	return &stockpb.Receipt{}, nil
}

// reasonOf gives an error the reason that other surfaces give it.
func reasonOf(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, core.ErrBusy):
		return "LOCK_BUSY"
	case errors.Is(err, core.ErrLost):
		return "LOCK_LOST"
	}
	return err.Error()
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
	gin.SetMode(gin.ReleaseMode)
	server := redistest.Start(t)
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
	hasty := surfaces(t, locks, tracer, 0, call)
	patient := surfaces(t, locks, tracer, core.Forever, call)

	// A lock that is free.
	owners := make(chan string, len(hasty))
	for _, s := range hasty {
		work <- func(ctx context.Context) error {
			lease, _ := core.LeaseFrom(ctx)
			trace.SpanFromContext(ctx).SetAttributes(attribute.Int64("token", lease.Token()))
			owners <- rdb.HGet(ctx, rdb.Keys(ctx, "*").Val()[0], "o").Val()
			return nil
		}
		if reason := s.send(); reason != "" {
			t.Fatalf("%s: a free lock: %s", s.name, reason)
		}
		spans := seen.spans("request", "lock acquire "+s.name+" < request",
			"lock hold "+s.name+" < request", "call < lock hold "+s.name, "lock release "+s.name+" < request")
		call := spans["call"].Attributes
		if len(call) != 1 || call[0].Value.AsInt64() == 0 {
			t.Fatalf("%s: the call had no token", s.name)
		}
		attributes := map[string]string{
			"lock.name": s.name, "lock.driver": "redis", "lock.mode": "exclusive", "lock.outcome": "acquired",
			"lock.token": call[0].Value.Emit(), "error.type": "",
		}
		wantAttributes(t, spans["lock acquire "+s.name], attributes)
		attributes["lock.outcome"] = "released"
		wantAttributes(t, spans["lock hold "+s.name], attributes)
		wantAttributes(t, spans["lock release "+s.name], map[string]string{"lock.outcome": "released", "error.type": ""})
	}

	// A lock that another process holds.
	lease, err := other.Acquire(t.Context(), core.Policy{Key: "stock:" + tracedSKU})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range hasty {
		if reason := s.send(); reason != "LOCK_BUSY" {
			t.Fatalf("%s: a held lock: %q", s.name, reason)
		}
		acquire := seen.spans("request", "lock acquire "+s.name+" < request")["lock acquire "+s.name]
		wantAttributes(t, acquire, map[string]string{"lock.outcome": "busy", "error.type": "busy", "lock.token": ""})
		if acquire.Status.Code != otelcodes.Error {
			t.Errorf("%s: the span of a refused call has status %v", s.name, acquire.Status)
		}
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A lock that the server loses while it is held.
	for _, s := range patient {
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
		if reason := s.send(); reason != "LOCK_LOST" {
			t.Fatalf("%s: a lost lock: %q", s.name, reason)
		}
		hold := seen.spans("request", "lock acquire "+s.name+" < request",
			"lock hold "+s.name+" < request", "call < lock hold "+s.name)["lock hold "+s.name]
		wantAttributes(t, hold, map[string]string{"lock.outcome": "lost", "error.type": "lost"})
	}

	// A lock that is handed from one surface to the next. After more than a second
	// of waiting the process asks the server first, which is no hand-off.
	granted, want := int64(len(hasty)+len(patient)), map[string]int64{}
	for want["lock.handoff"] == 0 {
		leave := make(chan struct{})
		work <- func(context.Context) error { <-leave; return nil }
		work <- func(context.Context) error { return nil }
		reasons := make(chan string, 2)
		for _, s := range patient[:2] {
			go func() { reasons <- s.send() }()
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
			if reason := <-reasons; reason != "" {
				t.Fatalf("of two at once: %s", reason)
			}
		}
		granted += 2
		want["lock.handoff"] = seen.metrics()["lock.handoff"]
	}
	fmt.Fprintf(&seen.text, "%+v\n", seen.exporter.GetSpans())

	lost := int64(len(patient))
	want["lock.lost"], want["lock.held"], want["lock.waiting"] = lost, 0, 0
	want["lock.wait.duration acquired"], want["lock.wait.duration busy"] = granted, int64(len(hasty))
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
	for range hasty {
		owner := <-owners
		for _, secret := range []string{owner, hex.EncodeToString([]byte(owner)), tracedSKU} {
			if secret == "" || strings.Contains(seen.text.String(), secret) {
				t.Errorf("telemetry tells %q", secret)
			}
		}
	}
}
