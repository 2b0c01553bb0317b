package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"testing"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestTransactionWithinOneOfTheSameKeyIsADeadlock(t *testing.T) {
	again := core.Policy{Key: "stock:{SKU}", Reentrant: true}
	for _, tc := range []struct {
		name string
		key  string
		ctx  func(context.Context) context.Context
		want error
	}{
		{"the same key", "A", func(ctx context.Context) context.Context { return ctx }, core.ErrDeadlock},
		{"another key", "B", func(ctx context.Context) context.Context { return ctx }, nil},
		{"the same key in a call of its own", "A", core.Detach, core.ErrBusy},
	} {
		bubble(t, tc.name, func(t *testing.T, s *till) {
			inner := decorator.WithLockTx(s.Engine, again, s.db, sell)
			_, err := decorator.WithLockTx(s.Engine, again, s.db, func(ctx context.Context, _ *sql.Tx, _ deduction) (receipt, error) {
				return inner(tc.ctx(ctx), deduction{tc.key, 1})
			})(t.Context(), deduction{SKU: "A"})
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	bubble(t, "the same key without a transaction around", func(t *testing.T, s *till) {
		_, err := decorator.WithLock(s.Engine, again, decorator.WithLockTx(s.Engine, again, s.db, sell))(t.Context(), deduction{"A", 1})
		if got, want := s.All(), "begin admit exec check commit release"; err != nil || got != want {
			t.Errorf("%s: %v", got, err)
		}
	})
}

// TestLeaseAroundIsNotTakenForItsOwn loses the inner of two leases just after its grant:
// the outer one is held, and its token must not be written for the other.
func TestLeaseAroundIsNotTakenForItsOwn(t *testing.T) {
	bubble(t, "nested", func(t *testing.T, s *till) {
		spans := trace.NewTracerProvider(trace.WithSpanProcessor(roomtest.Starts(func(span string) {
			if span == "lock hold stock:{SKU}" {
				_ = s.lose(t.Context())
			}
		})))
		e, err := core.New(s.Store, core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)), core.WithTracerProvider(spans))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = e.Close() }()
		inner := decorator.WithLockTx(e, stock, s.db, sell)
		_, err = decorator.WithLock(e, core.Policy{Key: "order:{SKU}"}, inner)(t.Context(), deduction{"A", 1})
		if !errors.Is(err, core.ErrLost) || s.All() != "" {
			t.Errorf("%s: %v", s.All(), err)
		}
	})
}
