package kit_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/kit"
)

func TestTheLatestAreRemembered(t *testing.T) {
	const atLeast = 10
	r := kit.NewRecent[int, string](atLeast)
	for i := range 100 {
		r.Put(i, "first")
		r.Put(i, "last")
		found := 0
		for j := range i + 1 {
			if v := r.Get(j); v == "last" {
				found++
			} else if v != "" || i-j < atLeast {
				t.Fatalf("%d after it, %d is remembered as %q", i-j, j, v)
			}
		}
		if found > 2*atLeast {
			t.Fatalf("%d are remembered, want at most %d", found, 2*atLeast)
		}
	}
	for i := range 100 {
		r.Delete(i)
		if v := r.Get(i); v != "" {
			t.Errorf("%d was deleted, and is remembered as %q", i, v)
		}
	}
}
