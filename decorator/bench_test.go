package decorator_test

import (
	"context"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
)

// BenchmarkCall is the decorator's part of a call, beside the engine alone.
func BenchmarkCall(b *testing.B) {
	locks, err := core.New(memlock.New(), core.WithNamespace("bench"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = locks.Close() })
	type request struct{ SKU string }
	deduct := func(context.Context, request) (int, error) { return 1, nil }
	locked := decorator.WithLock(locks, core.Policy{Key: "stock:{SKU}"}, deduct)
	ctx := context.Background()
	b.Run("Engine.Do", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := locks.Do(ctx, core.Policy{Key: "stock:book"}, func(context.Context) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("WithLock", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := locked(ctx, request{SKU: "book"}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
