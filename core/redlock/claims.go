package redlock

import (
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// errOusted is the cause of a lease that somebody took away at the nodes.
var errOusted = errors.New("redlock: the lease was taken from its owner at the nodes")

// claims are the session's owners: those who wait and those who hold. It knows what a
// push is about.
type claims struct {
	mu      sync.Mutex
	all     map[driver.Owner]*claim
	sweepAt int // len(all) at which to look for leases that nobody released
}

// claim is one owner's. Its fields are guarded by claims.mu.
type claim struct {
	id        driver.ID
	place     *place    // nil once the lease is granted
	deadline  time.Time // of the lease, the latest known
	contended bool      // somebody else was said to want the key
	lost      uint64    // nodes that have said so, a bit each
	asked     time.Time // when the release was first asked for
	doubt     uint64    // nodes that may execute a request of the owner after its end
}

// open notes an owner that asks.
func (c *claims) open(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all[p.r.Owner] = &claim{id: p.r.ID, place: p}
}

// forget removes an owner that is over, and returns the nodes in doubt.
func (c *claims) forget(o driver.Owner) (doubt uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil {
		doubt = cl.doubt
	}
	delete(c.all, o)
	return doubt
}

// suspect notes that a node may execute a request of a holder late, and reports whether the
// holder's end is still to come, which then sees to it.
func (c *claims) suspect(o driver.Owner, node int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[o]
	if cl == nil || cl.place != nil || !cl.asked.IsZero() {
		return false
	}
	cl.doubt |= 1 << node
	return true
}

// grant notes that an owner holds, and reports whether others were said to wait.
func (c *claims) grant(id driver.ID, deadline time.Time) (contended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.sweepAt {
		now := time.Now()
		for o, cl := range c.all {
			if cl.place == nil && now.After(cl.deadline) {
				delete(c.all, o)
			}
		}
		c.sweepAt = max(1024, 2*len(c.all))
	}
	cl := c.all[id.Owner]
	if cl == nil {
		cl = &claim{id: id}
		c.all[id.Owner] = cl
	}
	cl.place, cl.deadline = nil, deadline
	return cl.contended
}

// extend notes a renewal.
func (c *claims) extend(o driver.Owner, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil {
		cl.deadline = driver.Later(cl.deadline, deadline)
	}
}

// holds reports whether an owner has its lease, and nobody has asked for its end.
func (c *claims) holds(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[o]
	return cl != nil && cl.place == nil && cl.asked.IsZero()
}

// release returns when the end of an owner's lease was first asked for, which is now
// unless it was before, and the nodes in doubt.
func (c *claims) release(e *driver.Ending, now time.Time) (asked time.Time, doubt uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[e.Owner]
	if cl == nil {
		cl = &claim{id: e.ID, deadline: e.Deadline}
		c.all[e.Owner] = cl
	}
	if cl.asked.IsZero() {
		cl.asked = now
	}
	return cl.asked, cl.doubt
}

// in reports whether a node is one of those that nodes has a bit for.
func in(nodes uint64, node int) bool { return nodes>>node&1 == 1 }

// pushed takes one push of a node.
func (s *session) pushed(node int, payload string) {
	m, ok := parsePush(payload)
	if !ok {
		return
	}
	c := &s.claims
	c.mu.Lock()
	cl := c.all[m.owner]
	if cl == nil {
		c.mu.Unlock()
		return
	}
	id, p, doubt, deadline := cl.id, cl.place, cl.doubt, cl.deadline
	held := p == nil && cl.asked.IsZero()
	lost := false
	switch m.kind {
	case pushWanted:
		cl.contended = true
	case pushLost:
		cl.lost |= 1 << node
		lost = held && len(s.nodes)-bits.OnesCount64(cl.lost) < s.quorum
		if lost {
			delete(c.all, m.owner)
		}
	}
	c.mu.Unlock()
	switch {
	case p != nil && m.kind == pushFree:
		p.nudge(node)
	case held && m.kind == pushWanted:
		s.sink.Contended(id, true)
	case lost:
		for i, c := range s.cleaners {
			if in(doubt, i) {
				c.owe(id, 0, rest(deadline), true)
			}
		}
		s.sink.Lost(id, errOusted)
	}
}

// hear starts the subscriptions, one at each node. It is called by the first Acquire,
// whether it waits or not: callers of this process may come to wait for the lease, and
// it is handed on among them without a bound until a push says that others wait.
func (s *session) hear() {
	s.listen.Do(func() {
		for i := range s.nodes {
			s.Start(func() { s.listenTo(i) })
		}
	})
}

// listenTo keeps the subscription at one node.
func (s *session) listenTo(node int) {
	const first, most = 20 * time.Millisecond, time.Second
	pause := first
	for s.Ctx.Err() == nil {
		began := time.Now()
		_ = s.nodes[node].listen(s.Ctx, s.channel, func() {
			pause = first
			s.askAgain(node) // what was pushed while nobody listened is gone
		}, func(payload string) { s.pushed(node, payload) })
		if time.Since(began) > most {
			pause = first
		}
		kit.Sleep(s.Ctx, time.Duration((0.5+s.d.jitter())*float64(pause)))
		pause = min(2*pause, most)
	}
}

// askAgain has every waiter ask a node again.
func (s *session) askAgain(node int) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for _, cl := range s.claims.all {
		if cl.place != nil {
			cl.place.nudge(node)
		}
	}
}
