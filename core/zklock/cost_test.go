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
	a.drop(a.take("k", time.Minute)) // makes the key, and watches it
	eventually(t, "the watch of the key", func() bool { n := count(); <-time.After(50 * time.Millisecond); return count() == n })

	const rounds = 10
	before := count()
	for range rounds {
		a.drop(a.take("k", time.Minute))
	}
	if n := count() - before; n != 4*rounds {
		t.Errorf("%d acquisitions and releases of a free key took %d requests, want 4 each", rounds, n)
	}

	g := b.take("k", time.Minute)
	w := a.queue("k", time.Minute)
	before = count()
	b.drop(g)
	g = granted(t, "the hand-over", w)
	if n := count() - before; n > 4 { // a glance, or a sign of life, may fall into it
		t.Errorf("a hand-over took %d requests of the next holder, want 2", n)
	}
	a.drop(g)
}
