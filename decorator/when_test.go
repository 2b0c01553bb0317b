package decorator_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

// callers are the two functions of a decorator as one.
func callers(e *core.Engine, p core.Policy, fn func(context.Context, deduction) error, opts ...decorator.Option) map[string]func(context.Context, deduction) error {
	withLock := decorator.WithLock(e, p, func(ctx context.Context, in deduction) (receipt, error) { return receipt{}, fn(ctx, in) }, opts...)
	return map[string]func(context.Context, deduction) error{
		"WithLock":    func(ctx context.Context, in deduction) error { _, err := withLock(ctx, in); return err },
		"WithLockErr": decorator.WithLockErr(e, p, fn, opts...),
	}
}

// real reports whether a deduction takes anything.
func real(d deduction) bool { return d.Count > 0 }

func TestWhenLetsCallsThroughUnlockedWithTheirOwnContext(t *testing.T) {
	store := memlock.New()
	e := roomtest.Engine(t, store)
	holdStock(t, roomtest.Engine(t, store), "A")
	outer, err := e.Acquire(t.Context(), core.Policy{Key: "outer"})
	if err != nil {
		t.Fatal(err)
	}
	caller := outer.Context(t.Context())
	own := errors.New("its own")
	for name, call := range callers(e, stock, func(ctx context.Context, in deduction) error {
		l, _ := core.LeaseFrom(ctx)
		if in.Count == 0 && (ctx != caller || l != outer) || in.Count > 0 && l.Key() != "stock:B" {
			t.Errorf("%v runs with the lease of %q", in, l.Key())
		}
		return own
	}, decorator.When(real)) {
		if err := call(caller, deduction{"A", 0}); !isExactly(err, own) {
			t.Errorf("%s, beside a holder: %v", name, err)
		}
		if err := call(caller, deduction{}); !isExactly(err, own) {
			t.Errorf("%s, without a value for a key that is not needed: %v", name, err)
		}
		if err := call(caller, deduction{"A", 1}); !errors.Is(err, core.ErrBusy) {
			t.Errorf("%s, with a lock that is taken: %v", name, err)
		}
		if err := call(caller, deduction{"B", 1}); !isExactly(err, own) {
			t.Errorf("%s, with a lock: %v", name, err)
		}
	}
	if err := outer.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhenThatPanicsRunsNothing(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	for name, call := range callers(e, stock, func(context.Context, deduction) error { t.Error("the function runs"); return nil },
		decorator.When(func(deduction) bool { panic("condition") })) {
		func() {
			defer func() {
				if v := recover(); v != "condition" {
					t.Errorf("%s panicked with %v", name, v)
				}
			}()
			_ = call(t.Context(), deduction{"A", 1})
		}()
	}
	if l, err := e.Acquire(t.Context(), core.Policy{Key: "stock:A"}); err != nil {
		t.Error(err)
	} else if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWhenThatCannotWorkIsRefused(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	till := newTill(t)
	fn := func(context.Context, deduction) error { return nil }
	for name, tc := range map[string]struct {
		opts []decorator.Option
		says string
	}{
		"nil":              {[]decorator.Option{decorator.When[deduction](nil)}, "When has a nil function"},
		"twice":            {[]decorator.Option{decorator.When(real), decorator.When(real)}, "When is given twice"},
		"another argument": {[]decorator.Option{decorator.When(func(*deduction) bool { return true })}, "When has a func(*decorator_test.deduction) bool; this function needs a func(decorator_test.deduction) bool"},
	} {
		if _, err := decorator.NewErr(e, stock, fn, tc.opts...); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := decorator.NewTx(till.Engine, stock, till.db, sell, decorator.When(real)); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "a transaction without a lock has no token") {
		t.Errorf("a transaction: %v", err)
	}
}
