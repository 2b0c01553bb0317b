package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/lab/internal/golden"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestEachMeasureIsTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("starts Clusters")
	}
	testservers.Need(t, "redis-server")
	for _, m := range measures {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			r, err := run(t.Context(), brief, []measuring{m}, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Figures) == 0 || !strings.Contains(r.Server, "Redis") {
				t.Fatalf("%+v", r)
			}
			for _, f := range r.Figures {
				if len(f.Values) != 2 {
					t.Errorf("%s was taken %d times in 2 rounds", f.Name, len(f.Values))
				}
				if strings.HasSuffix(f.Name, "failed") && (f.Values[0] > 0 || f.Values[1] > 0) {
					t.Errorf("%s: %v", f.Name, f.Values)
				}
			}
		})
	}
}

func TestTableHasAColumnForEachRelease(t *testing.T) {
	golden.Check(t, "table.md", table([]*result{
		{Server: "Redis 7.0.15", Machine: "2 cores", Figures: []*taken{{"a section", "µs", []float64{12.34, 10, 11}}, {"a channel", "", []float64{1, 1}}}},
		{Server: "Redis 8.6.3", Machine: "2 cores", Figures: []*taken{{"a section", "µs", []float64{9}}, {"a million keys", "B", []float64{1234567}}}},
	}))
}

func TestFiguresThatWereNotMeasuredAgainStay(t *testing.T) {
	a, b, c := &taken{Name: "a"}, &taken{Name: "b"}, &taken{Name: "c"}
	newer := &taken{Name: "b", Values: []float64{1}}
	if got := merged([]*taken{a, b}, []*taken{newer, c}); !slices.Equal(got, []*taken{a, newer, c}) {
		t.Errorf("merged %v", got)
	}
}
