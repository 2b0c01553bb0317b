package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func BenchmarkDo(b *testing.B) {
	e := open(b, memlock.New())
	p := core.Policy{Key: "stock:42", Name: "stock"}
	fn := func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := e.Do(b.Context(), p, fn); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	e := open(b, memlock.New())
	p := core.Policy{Key: "stock:42", Name: "stock"}
	b.ReportAllocs()
	for b.Loop() {
		l, err := e.Acquire(b.Context(), p)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Release(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSeveralKeys takes free keys of one policy and releases them.
func BenchmarkSeveralKeys(b *testing.B) {
	for _, n := range []int{2, 10} {
		b.Run(fmt.Sprintf("keys=%d", n), func(b *testing.B) {
			e := open(b, memlock.New())
			p := core.Policy{Name: "cart"}
			for i := range n {
				p.Keys = append(p.Keys, fmt.Sprint("stock:", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				l, err := e.Acquire(b.Context(), p)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Release(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTelemetry is Do under the providers that a program may have. The spans
// of the SDK are ended, batched and thrown away.
func BenchmarkTelemetry(b *testing.B) {
	discard := func(s sdktrace.Sampler) trace.TracerProvider {
		tp := sdktrace.NewTracerProvider(sdktrace.WithSampler(s), sdktrace.WithBatcher(tracetest.NewNoopExporter()))
		b.Cleanup(func() { _ = tp.Shutdown(context.Background()) })
		return tp
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	for _, bm := range []struct {
		name   string
		traces trace.TracerProvider
		meters metric.MeterProvider
	}{
		{"no-op", tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()},
		{"SDK metrics", tracenoop.NewTracerProvider(), meters},
		{"SDK metrics and unsampled traces", discard(sdktrace.NeverSample()), meters},
		{"SDK metrics and traces", discard(sdktrace.AlwaysSample()), meters},
	} {
		b.Run(bm.name, func(b *testing.B) {
			e := open(b, memlock.New(), core.WithTracerProvider(bm.traces), core.WithMeterProvider(bm.meters))
			p := core.Policy{Key: "stock:42", Name: "stock"}
			fn := func(context.Context) error { return nil }
			b.ReportAllocs()
			for b.Loop() {
				if err := e.Do(b.Context(), p, fn); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkHandOff is n callers of one process on one key: what one critical
// section costs.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{2, 64} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			e := open(b, memlock.New())
			p := core.Policy{Key: "stock:42", Name: "stock", Wait: core.Forever}
			left := b.N
			fn := func(context.Context) error { left--; return nil }
			b.ReportAllocs()
			var wg sync.WaitGroup
			for i := range n {
				wg.Go(func() {
					for range b.N/n + min(1, max(0, b.N%n-i)) {
						if err := e.Do(b.Context(), p, fn); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if left != 0 {
				b.Errorf("%d critical sections were lost or run twice", left)
			}
		})
	}
}
