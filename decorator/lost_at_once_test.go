package decorator_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/job"
)

// TestALeaseThatIsLostAtOnceHarmsNoMoreThanItsCall has the first lease taken away just after
// its grant, when nobody has looked at it yet.
func TestALeaseThatIsLostAtOnceHarmsNoMoreThanItsCall(t *testing.T) {
	policy := core.Policy{Key: "job:report", TTL: time.Second}
	for _, c := range []struct {
		name string
		call func(t *testing.T, e *core.Engine) error
		want error
	}{
		{"job", func(t *testing.T, e *core.Engine) error {
			s := job.Schedule{Every: 2 * time.Minute, Skew: 5 * time.Second, MaxRun: 30 * time.Second}
			s.MaxRun = 500 * time.Millisecond
			return job.Must(e, policy, func(ctx context.Context) error {
				if l, ok := core.LeaseFrom(ctx); ok || l.Token() != 0 || l.TokenOf("job:report") != 0 {
					t.Errorf("lease %v, %t, of token %d; want none, of token 0", l, ok, l.Token())
				}
				return context.Cause(ctx)
			}, s).Run(t.Context())
		}, core.ErrLost},
		{"cached", func(t *testing.T, e *core.Engine) error {
			f := decorator.Cached(e, core.Policy{Key: "job:{.}", Wait: time.Minute}, cache.NewMemory(cache.Limits{Entries: 9}),
				func(_ context.Context, in string) (string, error) { return in, nil }, decorator.CachePolicy{Expiry: time.Minute})
			defer f.Close()
			v, err := f.Get(t.Context(), "report")
			if v != "report" {
				t.Errorf("got %q", v)
			}
			return err
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				peer, err := core.New(store, core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithForceRelease())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = peer.Close() }()
				var lost atomic.Bool
				spans := trace.NewTracerProvider(trace.WithSpanProcessor(starts(func(span string) {
					if strings.HasPrefix(span, "lock hold ") && lost.CompareAndSwap(false, true) {
						if _, err := peer.ForceRelease(context.Background(), "job:report"); err != nil {
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
				if err := c.call(t, e); !errors.Is(err, c.want) || !lost.Load() {
					t.Errorf("%v, want %v; lost: %t", err, c.want, lost.Load())
				}
			})
		})
	}
}
