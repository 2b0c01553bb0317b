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

func TestWhatCannotWorkIsRefusedWhereItIsWritten(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	fn := func(context.Context, deduction) (receipt, error) { return receipt{}, nil }
	fnErr := func(context.Context, deduction) error { return nil }
	toInt := decorator.OnBusy(func(context.Context, deduction, error) (int, error) { return 0, nil })
	toReceipt := decorator.OnBusy(func(context.Context, deduction, error) (receipt, error) { return receipt{}, nil })
	skip := decorator.OnBusyErr(func(context.Context, deduction, error) error { return nil })
	skipText := decorator.OnBusyErr(func(context.Context, string, error) error { return nil })
	const (
		needs    = "func(context.Context, decorator_test.deduction, error) (decorator_test.receipt, error)"
		needsErr = "func(context.Context, decorator_test.deduction, error) error"
	)
	for _, tc := range []struct {
		name   string
		engine *core.Engine
		policy core.Policy
		fn     func(context.Context, deduction) (receipt, error)
		fnErr  func(context.Context, deduction) error
		opts   []decorator.Option
		want   []string
	}{
		{name: "nil engine", policy: stock, fn: fn, fnErr: fnErr, want: []string{`"stock:{SKU}"`, "engine is nil"}},
		{name: "nil function", engine: e, policy: stock, want: []string{`"stock:{SKU}"`, "function is nil"}},
		{name: "misspelt", engine: e, policy: core.Policy{Name: "deduct", Key: "stock:{sku}"}, fn: fn, fnErr: fnErr, want: []string{`"deduct"`, "{sku}", "did you mean SKU?"}},
		{name: "malformed", engine: e, policy: core.Policy{Key: "stock:{SKU"}, fn: fn, fnErr: fnErr, want: []string{"column 7"}},
		{name: "impossible", engine: e, policy: core.Policy{Key: "stock:{SKU}", Wait: -1}, fn: fn, fnErr: fnErr, want: []string{"Wait"}},
		{name: "fallback of another result", engine: e, policy: stock, fn: fn, opts: []decorator.Option{toInt}, want: []string{`"stock:{SKU}"`, "OnBusy", "(int, error)", needs}},
		{name: "fallback of the error twin", engine: e, policy: stock, fn: fn, opts: []decorator.Option{skip}, want: []string{"OnBusyErr", needs}},
		{name: "fallback of the result twin", engine: e, policy: stock, fnErr: fnErr, opts: []decorator.Option{toReceipt}, want: []string{"OnBusy", needsErr}},
		{name: "fallback of another argument", engine: e, policy: stock, fnErr: fnErr, opts: []decorator.Option{skipText}, want: []string{"string", needsErr}},
		{name: "two fallbacks", engine: e, policy: stock, fn: fn, opts: []decorator.Option{toReceipt, toReceipt}, want: []string{"more than one fallback"}},
		{name: "nil fallback", engine: e, policy: stock, fn: fn, opts: []decorator.Option{decorator.OnBusy[deduction, receipt](nil)}, want: []string{"OnBusy has a nil fallback"}},
		{name: "nil error fallback", engine: e, policy: stock, fnErr: fnErr, opts: []decorator.Option{decorator.OnBusyErr[deduction](nil)}, want: []string{"OnBusyErr has a nil fallback"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(err error) {
				t.Helper()
				if !errors.Is(err, core.ErrPolicy) {
					t.Fatalf("got %v", err)
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%q does not say %q", err, want)
					}
				}
			}
			checkPanic := func(register func()) {
				t.Helper()
				defer func() {
					t.Helper()
					err, _ := recover().(error)
					check(err)
				}()
				register()
			}
			if tc.fn != nil || tc.fnErr == nil {
				locked, err := decorator.New(tc.engine, tc.policy, tc.fn, tc.opts...)
				check(err)
				if locked != nil {
					t.Error("New returned a function beside its error")
				}
				checkPanic(func() { decorator.WithLock(tc.engine, tc.policy, tc.fn, tc.opts...) })
			}
			if tc.fnErr != nil || tc.fn == nil {
				locked, err := decorator.NewErr(tc.engine, tc.policy, tc.fnErr, tc.opts...)
				check(err)
				if locked != nil {
					t.Error("NewErr returned a function beside its error")
				}
				checkPanic(func() { decorator.WithLockErr(tc.engine, tc.policy, tc.fnErr, tc.opts...) })
			}
		})
	}
}
