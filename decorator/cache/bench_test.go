package cache_test

import (
	"strings"
	"testing"

	"github.com/lockaround/lockaround/decorator/cache"
)

// BenchmarkGet is a hit in the memory of the process.
func BenchmarkGet(b *testing.B) {
	m := cache.NewMemory(cache.Limits{Entries: 1000})
	mustPut(b, m, "stock:book", 1, strings.Repeat("v", 100), hour)
	t, remote := newTiered(b, cache.Limits{Entries: 1000})
	mustPut(b, remote.Memory, "stock:book", 1, strings.Repeat("v", 100), hour)
	mustRead(b, t, "stock:book", strings.Repeat("v", 100))
	for name, s := range map[string]cache.Store{"Memory": m, "Tiered": t} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := b.Context()
			for b.Loop() {
				if e, err := s.Get(ctx, "stock:book"); e.Value == nil || err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
