package main

import (
	"context"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/shelf"
)

// BenchmarkCall is a generated wrapper beside the same written by hand.
func BenchmarkCall(b *testing.B) {
	locks := newLocks(b)
	ctx := context.Background()
	s := &shelf.Shelf{Left: map[string]int{}}
	w := must(shelf.NewShelfWithLock(locks, s))
	sku := "A-1"
	b.Run("hand", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var left int
			err := locks.Do(ctx, core.Policy{Key: "shelf:" + core.Escape(sku)}, func(ctx context.Context) (err error) {
				left, err = s.Deduct(ctx, sku)
				return err
			})
			if err != nil {
				b.Fatal(left, err)
			}
		}
	})
	b.Run("generated", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := w.Deduct(ctx, sku); err != nil {
				b.Fatal(err)
			}
		}
	})
}
