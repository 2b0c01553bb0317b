package zklock_test

import (
	"testing"
	"time"
)

// TestCostInRequests keeps doc.go honest.
func TestCostInRequests(t *testing.T) {
	_, proxy, a, d := pair(t)
	b := open(t, d)
	count := func() int {
		n, _ := proxy.Counts()
		return n
	}
	round := func() int {
		before := count()
		a.drop(a.take("k", time.Minute))
		return count() - before
	}
	eventually(t, "an acquisition and release of a free key by 4 requests, once the key is made and watched", func() bool { return round() == 4 })
	for range 10 {
		if n := round(); n != 4 {
			t.Errorf("an acquisition and release of a free key took %d requests, want 4", n)
		}
	}

	g := b.take("k", time.Minute)
	w := a.queue("k", time.Minute)
	before := count()
	b.drop(g)
	g = granted(t, "the hand-over", w)
	if n := count() - before; n > 4 { // a glance, or a sign of life, may fall into it
		t.Errorf("a hand-over took %d requests of the next holder, want 2", n)
	}
	a.drop(g)
}
