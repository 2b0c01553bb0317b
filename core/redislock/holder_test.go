package redislock_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestRefusedCallNamesTheHolderAfterAHandOverToo has the key handed over by the server, and
// looks at the spans and the log of calls that it refuses before and after that.
func TestRefusedCallNamesTheHolderAfterAHandOverToo(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	var log bytes.Buffer
	process := func(identity string, more ...core.Option) *engine {
		more = append(more, core.WithIdentity(identity), core.WithTracerProvider(provider))
		return newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()}), more...)
	}
	a, b := process("orders-1"), process("orders-2")
	c := process("orders-3", core.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	policy := func(name string, wait time.Duration) core.Policy {
		return core.Policy{Key: "card:4242", Name: name, Wait: wait, TTL: time.Minute}
	}
	refused := func(name string, wait time.Duration, holder string, identity string) {
		t.Helper()
		log.Reset()
		if _, err := c.Acquire(t.Context(), policy(name, wait)); err == nil || strings.Contains(err.Error(), identity) {
			t.Fatalf("acquire of a key that is taken: %v", err)
		}
		if text := log.String(); strings.Count(text, "lock.holder="+identity+" ") != 1 || strings.Contains(text, "4242") {
			t.Errorf("the log should name %s, and not the key: %s", identity, text)
		}
		var waiter, taker tracetest.SpanStub
		for _, s := range spans.GetSpans() {
			switch s.Name {
			case "lock acquire " + name:
				waiter = s
			case "lock acquire " + holder:
				taker = s
			}
		}
		_, probe := provider.Tracer("test").Start(t.Context(), "any")
		defer probe.End()
		if _, can := probe.(interface{ AddLink(oteltrace.Link) }); !can {
			return // OpenTelemetry before 1.25.0
		}
		if len(waiter.Links) != 1 || waiter.Links[0].SpanContext.SpanID() != taker.SpanContext.SpanID() || waiter.Links[0].SpanContext.TraceID() != taker.SpanContext.TraceID() {
			t.Errorf("the span of %q has the links %v, want one to %v", name, waiter.Links, taker.SpanContext.SpanID())
		}
	}

	held, err := a.Acquire(t.Context(), policy("first", core.TryOnce))
	if err != nil {
		t.Fatal(err)
	}
	refused("busy", core.TryOnce, "first", "orders-1")
	refused("late", 2*time.Second, "first", "orders-1")
	granted := make(chan *core.Lease, 1)
	go func() {
		l, err := b.Acquire(t.Context(), policy("second", core.Forever))
		if err != nil {
			t.Error(err)
		}
		granted <- l
	}()
	<-b.queued
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	held = <-granted
	refused("busy again", core.TryOnce, "second", "orders-2")
	refused("late again", 2*time.Second, "second", "orders-2")
	if err := held.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}
