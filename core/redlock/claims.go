package redlock

import (
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// claims holds the session's owners, those that wait and those that hold, for the pushes
// that concern them.
type claims struct {
	mu      sync.Mutex
	all     map[driver.Owner]*claim
	sweepAt int // len(all) at which to remove expired leases that nobody released
}

// asker is a running Acquire, as far as claims concern it.
type asker interface {
	askNow(node int)
	afterVote(node int, call func()) bool
}

// claim is the wait or the lease of one owner. Its fields are guarded by claims.mu.
type claim struct {
	id        driver.ID
	acquiring asker     // nil once the lease is granted
	granted   bool      // also while it is acquired once more
	voting    asker     // who was granted the lease, while some node has not answered
	deadline  time.Time // of the lease, the latest known
	contended bool      // a node has said that others want the key
	lost      uint64    // nodes that have ousted the lease, a bit each
	endAsked  time.Time // when its end was first asked for
	late      uint64    // nodes that may execute a request after the end, a bit each
}

// add notes an owner that asks for the lease, and reports whether it was known: then it may have
// been granted the lease before.
func (c *claims) add(id driver.ID, a asker) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[id.Owner]
	if known = cl != nil; !known {
		cl = &claim{id: id}
		c.all[id.Owner] = cl
	}
	cl.acquiring = a
	return known
}

// remove removes an owner, and returns the nodes that may execute its requests late.
func (c *claims) remove(o driver.Owner) (late uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil {
		late = cl.late
	}
	delete(c.all, o)
	return late
}

// markLate notes that a node may execute a request of a holder late. It reports whether the
// lease has still to end; then its end covers this request.
func (c *claims) markLate(o driver.Owner, node int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[o]
	if !cl.holds() {
		return false
	}
	cl.late |= 1 << node
	return true
}

// noteGrant notes the lease of an owner. It reports whether a node has said that others want the
// key, and the nodes that have ousted the lease already.
func (c *claims) noteGrant(id driver.ID, a asker, deadline time.Time) (contended bool, lost uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.sweepAt {
		now := time.Now()
		for o, cl := range c.all {
			if cl.acquiring == nil && now.After(cl.deadline) {
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
	cl.acquiring, cl.granted, cl.voting, cl.deadline = nil, true, a, deadline
	return cl.contended, cl.lost
}

// noteVoted notes that all nodes have answered an acquisition.
func (c *claims) noteVoted(o driver.Owner, a asker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil && cl.voting == a {
		cl.voting = nil
	}
}

// afterVote calls send soon, on another goroutine, and if it can when the node has answered the
// vote of a lease that is to end there, so that it does not execute the vote after the end. It
// reports false if no vote is under way.
func (c *claims) afterVote(node int, o driver.Owner, send func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[o]
	return cl != nil && cl.voting != nil && cl.voting.afterVote(node, send)
}

// noteRenewal notes the deadline of a renewed lease.
func (c *claims) noteRenewal(o driver.Owner, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil {
		cl.deadline = driver.Later(cl.deadline, deadline)
	}
}

// holds reports whether an owner has a lease whose end was not asked for.
func (c *claims) holds(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[o].holds()
}

func (cl *claim) holds() bool { return cl != nil && cl.granted && cl.endAsked.IsZero() }

// noteEnd notes that the end of a lease is asked for. It returns when this was first the
// case, and the nodes that may execute the owner's requests late.
func (c *claims) noteEnd(e *driver.Ending, now time.Time) (endAsked time.Time, late uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[e.Owner]
	if cl == nil {
		cl = &claim{id: e.ID, deadline: e.Deadline}
		c.all[e.Owner] = cl
	}
	if cl.endAsked.IsZero() {
		cl.endAsked = now
	}
	return cl.endAsked, cl.late
}

// contains reports whether nodes has the bit of node.
func contains(nodes uint64, node int) bool { return nodes>>node&1 == 1 }
