package sqllock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// mine is what a session knows of a claim of its own.
type mine struct {
	id    driver.ID
	wake  kit.Signal    // of one that waits: the key may be free for it
	held  bool          // it has become a lease
	told  bool          // what the holder last heard about others waiting
	asked int64         // the latest request of one who would not wait that it heard of
	first time.Time     // when its release was first asked for; zero before
	since uint64        // the claims' clock when it last changed between waiting and held
	enrol time.Duration // how long its place lasts
	ahead int64         // how many a look has found before it; -1 before the first
}

// claims are those of a session.
type claims struct {
	mu      sync.Mutex
	byOwner map[driver.Owner]*mine
	byMark  map[string]*mine
	clock   uint64      // counts changes and looks
	used    atomic.Bool // since the last sweep
	change  kit.Signal  // set after a change that the watch must know of
	ends    time.Time   // a lease that is waited for, unless it is renewed; zero if unknown
}

func (c *claims) init() {
	c.byOwner, c.byMark = make(map[driver.Owner]*mine), make(map[string]*mine)
	c.change = kit.NewSignal()
}

// wait registers a place in the queue of a key whose first lease ends at the time ends.
func (c *claims) wait(id driver.ID, enrol time.Duration, ends time.Time) *mine {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &mine{id: id, wake: kit.NewSignal(), enrol: enrol, ahead: -1}
	c.expect(ends)
	c.put(m)
	return m
}

// hold registers a lease.
func (c *claims) hold(g driver.Grant, asked int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(&mine{id: g.ID, held: true, told: g.Contended, asked: asked})
}

func (c *claims) put(m *mine) {
	c.used.Store(true)
	c.clock++
	m.since = c.clock
	c.byOwner[m.id.Owner] = m
	c.byMark[mark(m.id.Owner)] = m
	c.change.Set()
}

// forget drops whatever is known of an owner.
func (c *claims) forget(o driver.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(o)
}

func (c *claims) drop(o driver.Owner) {
	delete(c.byOwner, o)
	delete(c.byMark, mark(o))
}

// release notes that the end of a lease is asked for, and returns when it first was.
func (c *claims) release(o driver.Owner, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.byOwner[o]
	if m == nil {
		return now
	}
	if m.first.IsZero() {
		m.first = now
	}
	return m.first
}

// expect has the watch look when a lease ends that is waited for. c is locked.
func (c *claims) expect(end time.Time) {
	if c.ends.IsZero() || end.Before(c.ends) {
		c.ends = end
		c.change.Set()
	}
}

// begin starts a look: what changes from now on is not judged by it.
func (c *claims) begin() (at uint64, some bool, enrol time.Duration, ends time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	for _, m := range c.byOwner {
		if !m.held && (enrol == 0 || m.enrol < enrol) {
			enrol = m.enrol
		}
	}
	return c.clock, len(c.byOwner) > 0, enrol, c.ends
}

// nudge has waiters ask again.
func (c *claims) nudge(owners ...driver.Owner) {
	if len(owners) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range owners {
		if m := c.byOwner[o]; m != nil && !m.held {
			m.wake.Set()
		}
	}
}

// nudgeAll has every waiter ask again.
func (c *claims) nudgeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.byOwner {
		if !m.held {
			m.wake.Set()
		}
	}
}
