package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

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
