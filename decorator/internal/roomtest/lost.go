package roomtest

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// Starts is told of each span as it starts.
type Starts func(span string)

// OnStart tells it.
func (f Starts) OnStart(_ context.Context, s trace.ReadWriteSpan) { f(s.Name()) }

// OnEnd does nothing.
func (Starts) OnEnd(trace.ReadOnlySpan) {}

// Shutdown does nothing.
func (Starts) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing.
func (Starts) ForceFlush(context.Context) error { return nil }

// LostAtOnce has the first lease of a call on a key taken away just after its grant, when nobody
// has looked at it yet, and expects the error that the call ends with.
func LostAtOnce(t *testing.T, key string, want error, call func(t *testing.T, e *core.Engine) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		peer, err := core.New(store, core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithForceRelease())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = peer.Close() }()
		var lost atomic.Bool
		spans := trace.NewTracerProvider(trace.WithSpanProcessor(Starts(func(span string) {
			if strings.HasPrefix(span, "lock hold ") && lost.CompareAndSwap(false, true) {
				if _, err := peer.ForceRelease(context.Background(), key); err != nil {
					t.Error(err)
				}
				synctest.Wait() // until the holder has been told
			}
		})))
		e, err := core.New(store, core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithTracerProvider(spans))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		if err := call(t, e); !errors.Is(err, want) || !lost.Load() {
			t.Errorf("%v, want %v; lost: %t", err, want, lost.Load())
		}
	})
}
