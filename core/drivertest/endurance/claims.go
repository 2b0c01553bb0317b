package endurance

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// claims are the times in which somebody could believe that a key is his: from when
// his acquire returned to when he called release, or to his deadline if that is sooner.
// No two of a key overlap.
type claims struct {
	mu  sync.Mutex
	all map[string][]*claim
}

type claim struct {
	from, to time.Time
	token    int64
}

// begin adds a claim that ends at a deadline.
func (c *claims) begin(key string, token int64, from, deadline time.Time) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &claim{from: from, to: deadline, token: token}
	c.all[key] = append(c.all[key], m)
	return m
}

// extend moves the deadline of a claim.
func (c *claims) extend(m *claim, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deadline.After(m.to) {
		m.to = deadline
	}
}

// end ends a claim before its release is called.
func (c *claims) end(m *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Before(m.to) {
		m.to = now
	}
}

// judge fails the test for each claim that began while an earlier one lasted, and for
// each whose token is not larger than the one before.
func (c *claims) judge(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, all := range c.all {
		slices.SortFunc(all, func(a, b *claim) int { return a.from.Compare(b.from) })
		for i := 1; i < len(all); i++ {
			before, m := all[i-1], all[i]
			if m.from.Before(before.to) {
				t.Errorf("key %s was granted twice: the second time %v before the first claim ended", key, before.to.Sub(m.from))
			}
			if m.token <= before.token && m.token != 0 {
				t.Errorf("key %s: token %d was granted after token %d", key, m.token, before.token)
			}
		}
	}
}
