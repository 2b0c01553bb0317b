package etcdlock

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
)

// in makes a place of a queue.
func in(mode driver.Mode, limit int, at stage) entry {
	return entry{place: place{mode: mode, limit: limit, stage: at}}
}

func TestPlaceIsAdmittedIfAllBeforeItCouldHoldBesideIt(t *testing.T) {
	const x, s, p = driver.Exclusive, driver.Shared, driver.Semaphore
	for name, tt := range map[string]struct {
		before []entry
		own    entry
		want   bool
	}{
		"a free key":                          {nil, in(x, 0, waiting), true},
		"a writer behind a reader":            {[]entry{in(s, 0, holding)}, in(x, 0, waiting), false},
		"a reader behind a writer":            {[]entry{in(x, 0, holding)}, in(s, 0, waiting), false},
		"a reader behind readers":             {[]entry{in(s, 0, holding), in(s, 0, waiting)}, in(s, 0, waiting), true},
		"a reader behind a writer that waits": {[]entry{in(s, 0, holding), in(x, 0, waiting)}, in(s, 0, waiting), false},
		"the last permit":                     {[]entry{in(p, 3, holding), in(p, 3, holding)}, in(p, 3, waiting), true},
		"one permit too many":                 {[]entry{in(p, 2, holding), in(p, 2, holding)}, in(p, 2, waiting), false},
		"a large permit beside a small one":   {[]entry{in(p, 9, holding), in(p, 2, holding)}, in(p, 9, waiting), false},
		"a small permit beside large ones":    {[]entry{in(p, 9, holding), in(p, 9, holding)}, in(p, 2, waiting), false},
		"a reader beside a permit of two":     {[]entry{in(p, 2, holding)}, in(s, 0, waiting), true},
		"a second reader beside it":           {[]entry{in(p, 2, holding), in(s, 0, holding)}, in(s, 0, waiting), false},
		"a key that is kept":                  {[]entry{in(x, 0, kept)}, in(s, 0, waiting), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := admits(tt.own.place, tt.before); got != tt.want {
				t.Errorf("admitted: %v, want %v", got, tt.want)
			}
		})
	}
}

// fits is the rule for a store that grants in turn: fewer hold than the capacity of the
// place, and than that of each holder's place.
func fits(p place, holders []entry) bool {
	if r := p.capacity(); r > 0 && len(holders) >= r {
		return false
	}
	for i := range holders {
		if r := holders[i].capacity(); r > 0 && len(holders) >= r {
			return false
		}
	}
	return true
}

func TestAdmissionIsTheRuleOfAQueueServedInTurn(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var q []entry // with who is granted in turn marked as holding
		for step := range 40 {
			switch n := random.IntN(10); {
			case n < 6 || len(q) == 0:
				mode := []driver.Mode{driver.Exclusive, driver.Shared, driver.Shared, driver.Semaphore}[random.IntN(4)]
				limit := 0
				if mode == driver.Semaphore {
					limit = 1 + random.IntN(4)
				}
				q = append(q, in(mode, limit, waiting))
			case n < 9:
				i := random.IntN(len(q))
				q = slices.Delete(slices.Clone(q), i, i+1)
			default:
				if i := random.IntN(len(q)); q[i].mode == driver.Exclusive && q[i].stage == holding {
					q[i].mode = driver.Shared
				}
			}
			var holders []entry
			for _, e := range q {
				if e.stage == holding {
					holders = append(holders, e)
				}
			}
			for i := range q {
				if q[i].stage == holding {
					continue
				}
				if !fits(q[i].place, holders) {
					break
				}
				q[i].stage = holding
				holders = append(holders, q[i])
			}
			for i := range q {
				if got, want := admits(q[i].place, q[:i]), q[i].stage == holding; got != want {
					t.Fatalf("after step %d, place %d of %+v: admitted %v, but in turn %v", step, i, q, got, want)
				}
			}
		}
	}
}
