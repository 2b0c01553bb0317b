package memlock

import (
	"slices"
	"sync"
	"time"
)

// Clock is a store's clock that a test moves by hand. It is safe for concurrent
// use.
type Clock struct {
	mu     sync.Mutex
	now    time.Time
	alarms []*alarm // in the order in which they are due
}

type alarm struct {
	due  time.Time
	ring func()
}

// NewClock returns a clock that shows start and stands still.
func NewClock(start time.Time) *Clock { return &Clock{now: start} }

// Now returns what the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on in one jump. When it returns, leases that have
// expired by then are granted to those who waited for them. A negative d does
// nothing: the clock never goes back.
func (c *Clock) Advance(d time.Duration) {
	if d < 0 {
		return
	}
	c.mu.Lock()
	c.now = c.now.Add(d)
	n := 0
	for n < len(c.alarms) && !c.alarms[n].due.After(c.now) {
		n++
	}
	due := slices.Clone(c.alarms[:n])
	c.alarms = slices.Delete(c.alarms, 0, n)
	c.mu.Unlock()
	for _, a := range due {
		a.ring()
	}
}

// at calls ring once the clock shows t, never before at returns.
func (c *Clock) at(t time.Time, ring func()) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !t.After(c.now) {
		go ring()
		return func() {}
	}
	a := &alarm{due: t, ring: ring}
	i, _ := slices.BinarySearchFunc(c.alarms, t, func(a *alarm, t time.Time) int { return a.due.Compare(t) })
	c.alarms = slices.Insert(c.alarms, i, a)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if i := slices.Index(c.alarms, a); i >= 0 {
			c.alarms = slices.Delete(c.alarms, i, i+1)
		}
	}
}
