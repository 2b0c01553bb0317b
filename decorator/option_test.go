package decorator_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestFallbackServesABusyCall(t *testing.T) {
	store := memlock.New()
	e := roomtest.Engine(t, store)
	holdStock(t, roomtest.Engine(t, store), "A")
	type tag struct{}
	ctx := context.WithValue(t.Context(), tag{}, "caller")
	check := func(ctx context.Context, d deduction, err error) {
		t.Helper()
		if !errors.Is(err, core.ErrBusy) || d != (deduction{"A", 2}) || ctx.Value(tag{}) != "caller" {
			t.Errorf("fallback for %v: %v", d, err)
		}
		if l, ok := core.LeaseFrom(ctx); ok {
			t.Errorf("the fallback holds %q", l.Key())
		}
	}

	deduct := decorator.WithLock(e, stock,
		func(context.Context, deduction) (receipt, error) { t.Error("the function ran"); return receipt{}, nil },
		nil, decorator.OnBusy(func(ctx context.Context, d deduction, err error) (receipt, error) {
			check(ctx, d, err)
			return receipt{-1}, nil
		}))
	if got, err := deduct(ctx, deduction{"A", 2}); got != (receipt{-1}) || err != nil {
		t.Errorf("got %v, %v", got, err)
	}

	own := errors.New("later")
	run := decorator.WithLockErr(e, stock,
		func(context.Context, deduction) error { t.Error("the function ran"); return nil },
		nil, decorator.OnBusyErr(func(ctx context.Context, d deduction, err error) error {
			check(ctx, d, err)
			return own
		}))
	if err := run(ctx, deduction{"A", 2}); !isExactly(err, own) {
		t.Errorf("got %v", err)
	}
}

func TestFallbackServesACallWhoseWaitRanOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		l, err := e.Acquire(t.Context(), core.Policy{Key: "stock:A"})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		deduct := decorator.WithLock(e, core.Policy{Key: "stock:{SKU}", Wait: 2 * time.Second},
			func(context.Context, deduction) (receipt, error) { t.Error("the function ran"); return receipt{}, nil },
			decorator.OnBusy(func(_ context.Context, _ deduction, err error) (receipt, error) {
				if !errors.Is(err, core.ErrTimeout) {
					t.Errorf("fallback for %v", err)
				}
				return receipt{-1}, nil
			}))
		if got, err := deduct(t.Context(), deduction{SKU: "A"}); got != (receipt{-1}) || err != nil {
			t.Errorf("got %v, %v", got, err)
		}
		if waited := time.Since(start); waited != 2*time.Second {
			t.Errorf("waited %v", waited)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestFallbackLeavesEveryOtherFailureAlone(t *testing.T) {
	store := memlock.New()
	e := roomtest.Engine(t, store)
	holdStock(t, roomtest.Engine(t, store), "inner")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	nested := func(ctx context.Context, _ deduction) (receipt, error) {
		return receipt{9}, e.Do(ctx, core.Policy{Key: "stock:inner"}, func(context.Context) error { return nil })
	}
	for _, tc := range []struct {
		name string
		ctx  context.Context
		in   deduction
		wait time.Duration
		down error
		out  receipt
		want error
	}{
		{name: "a lock inside the function is busy", ctx: t.Context(), in: deduction{SKU: "outer"}, out: receipt{9}, want: core.ErrBusy},
		{name: "the caller went away", ctx: ended, in: deduction{SKU: "inner"}, wait: core.Forever, want: context.Canceled},
		{name: "a value is missing", ctx: t.Context(), want: core.ErrKey},
		{name: "the store is down", ctx: t.Context(), in: deduction{SKU: "outer"}, down: errors.New("down"), want: core.ErrUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.down != nil {
				store.Fail(tc.down)
				defer store.Heal()
			}
			p := core.Policy{Key: "stock:{SKU}", Wait: tc.wait}
			got, err := decorator.WithLock(e, p, nested, decorator.OnBusy(func(_ context.Context, _ deduction, err error) (receipt, error) {
				t.Errorf("the fallback ran for %v", err)
				return receipt{-1}, nil
			}))(tc.ctx, tc.in)
			if got != tc.out || !errors.Is(err, tc.want) {
				t.Errorf("got %v, %v; want %v, %v", got, err, tc.out, tc.want)
			}
			err = decorator.WithLockErr(e, p, func(ctx context.Context, d deduction) error {
				_, err := nested(ctx, d)
				return err
			}, decorator.OnBusyErr(func(_ context.Context, _ deduction, err error) error {
				t.Errorf("the fallback ran for %v", err)
				return nil
			}))(tc.ctx, tc.in)
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}
