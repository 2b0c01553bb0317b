package redislock

import (
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// claim is what the session knows of one owner of its own, from before its
// first request until it has ended.
type claim struct {
	key       string
	place     *place        // while it is being acquired
	token     int64         // of a lease
	deadline  time.Duration // of a lease: the latest known, after claims.epoch
	ending    time.Duration // when its release was first asked for, likewise; 0 if it was not
	contended bool          // a push said that somebody waits, before the grant was known
}

// claims are a session's owners. A push that names none of them is for an
// owner that was given up.
type claims struct {
	mu      sync.Mutex
	byOwner map[driver.Owner]*claim
	sweepAt int
	epoch   time.Time // before everything else
}

// forgetAfter is how long after its deadline a lease is remembered that nobody
// has released: a release that is repeated for so long is still answered right.
const forgetAfter = time.Minute

func (c *claims) init() {
	c.byOwner = make(map[driver.Owner]*claim)
	c.sweepAt = 1024
	c.epoch = time.Now().Add(-1)
}

// open begins the acquisition of an owner.
func (c *claims) open(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byOwner) >= c.sweepAt {
		now := time.Since(c.epoch)
		for o, cl := range c.byOwner {
			if cl.place == nil && cl.deadline < now-forgetAfter {
				delete(c.byOwner, o)
			}
		}
		c.sweepAt = 1024 + 2*len(c.byOwner)
	}
	c.byOwner[p.id.Owner] = &claim{key: p.id.Key, place: p}
}

// leave lets Acquire go on with a place.
func (c *claims) leave(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.left = true
}

// resume returns the place that Begin has left to an owner, ready for waiting; nil if
// there is none.
func (c *claims) resume(o driver.Owner) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[o]
	if cl == nil || cl.place == nil || !cl.place.left {
		return nil
	}
	p := cl.place
	p.left = false
	p.open()
	if p.asked || p.push.Token > 0 || !p.ends.IsZero() {
		p.wake.Set()
	}
	return p
}

// hold turns an acquisition into a lease. It reports whether a push has said
// meanwhile that somebody waits.
func (c *claims) hold(id driver.ID, token int64, deadline time.Time) (contended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[id.Owner]
	if cl == nil { // an Acquire of the same owner beside this one has failed
		cl = &claim{key: id.Key}
		c.byOwner[id.Owner] = cl
	}
	cl.place, cl.token, cl.deadline = nil, token, deadline.Sub(c.epoch)
	return cl.contended
}

// lease is one that nobody has asked to end.
type lease struct {
	id       driver.ID
	token    int64
	deadline time.Time
}

// leases returns those that are believed to be held.
func (c *claims) leases(now time.Time) []lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []lease
	for o, cl := range c.byOwner {
		if cl.held(now.Sub(c.epoch)) {
			all = append(all, lease{driver.ID{Key: cl.key, Owner: o}, cl.token, c.epoch.Add(cl.deadline)})
		}
	}
	return all
}

// lose drops a lease that the server has no more, and reports whether it was
// believed to be held until then.
func (c *claims) lose(l lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[l.id.Owner]
	if cl == nil || !cl.held(time.Since(c.epoch)) || cl.token != l.token {
		return false
	}
	delete(c.byOwner, l.id.Owner)
	return true
}

func (cl *claim) held(now time.Duration) bool {
	return cl.place == nil && cl.ending == 0 && cl.deadline > now
}

// extend notes a renewal.
func (c *claims) extend(o driver.Owner, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byOwner[o]; cl != nil {
		cl.deadline = max(cl.deadline, deadline.Sub(c.epoch))
	}
}

// release notes that the end of a lease was asked for, and returns when that
// was first.
func (c *claims) release(o driver.Owner, now time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[o]
	if cl == nil {
		return now
	}
	if cl.ending == 0 {
		cl.ending = now.Sub(c.epoch)
	}
	return c.epoch.Add(cl.ending)
}

// forget drops an owner that has ended.
func (c *claims) forget(o driver.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byOwner, o)
}
