package redislock

import (
	"math"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// claims has a session's owners. If a push names another owner, that owner was given up.
type claims struct {
	mu      sync.Mutex
	byOwner map[driver.Owner]*claim
	sweepAt int       // how many owners there may be before add removes old ones
	epoch   time.Time // before everything else
}

// claim is the session's record of one owner, from before its first request until the
// owner has ended.
type claim struct {
	key            string
	place          *place        // while it is being acquired
	token          int64         // of a lease
	deadline       time.Duration // of a lease: the latest known, after claims.epoch
	releaseAskedAt time.Duration // when its release was first asked for, after claims.epoch; 0 if it was not
	trace          *driver.Trace // of that lease
	taken          uint32        // the length in ms of a lease whose key is a string as [protocol.Take] made it; else 0
	again          bool          // its release was asked for more than once
	contended      bool          // a push said that somebody waits, before the grant was known
	copies         bool          // of a lease: see place
	over           bool          // the owner has ended, and is remembered so that it does not come back
}

// forgetAfter is how long the claim of a lease stays after the deadline if nobody releases
// it. A release that is repeated within that time is still answered correctly.
const forgetAfter = time.Minute

func (c *claims) init() {
	c.byOwner = make(map[driver.Owner]*claim)
	c.sweepAt = 1024
	c.epoch = time.Now().Add(-1)
}

// add begins the acquisition of an owner, unless it has ended.
func (c *claims) add(p *place) (ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byOwner) >= c.sweepAt {
		now := time.Since(c.epoch)
		for o, cl := range c.byOwner {
			if cl.over || cl.place == nil && cl.deadline < now-forgetAfter {
				delete(c.byOwner, o)
			}
		}
		c.sweepAt = 1024 + 2*len(c.byOwner)
	}
	if cl := c.byOwner[p.id.Owner]; cl != nil {
		if cl.over || cl.place == nil && cl.deadline < time.Since(c.epoch) {
			return false
		}
		p.token = cl.token // of a lease that is asked for again
	}
	c.byOwner[p.id.Owner] = &claim{key: p.id.Key, place: p}
	return true
}

// park keeps a place of Begin for Acquire, which resumes it.
func (c *claims) park(p *place) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p.parked = true
}

// resume returns the parked place of an owner, ready for waiting, or nil if there is none.
func (c *claims) resume(o driver.Owner) *place {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[o]
	if cl == nil || cl.place == nil || !cl.place.parked {
		return nil
	}
	p := cl.place
	p.parked = false
	if p.inBegin {
		p.prepareToWait()
	}
	if p.refreshNow || p.push.Token > 0 || !p.freeAt.IsZero() {
		p.wake.Set()
	}
	return p
}

// becomeLease turns an acquisition into a lease. It reports whether a push has said
// meanwhile that somebody waits.
func (c *claims) becomeLease(p *place, token int64, deadline time.Time) (contended bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[p.id.Owner]
	if cl == nil { // a concurrent Acquire of the same owner has failed
		cl = &claim{key: p.id.Key}
		c.byOwner[p.id.Owner] = cl
	}
	for _, rq := range p.unanswered {
		p.copies = p.copies || rq.creates
	}
	if cl.taken = 0; p.taken <= math.MaxUint32*time.Millisecond { // of a longer one the script is asked
		cl.taken = uint32((p.taken + time.Millisecond - 1) / time.Millisecond)
	}
	cl.copies, cl.trace = p.copies && !p.s.sharesKeys(), p.r.Trace
	cl.place, cl.over, cl.token, cl.deadline = nil, false, token, deadline.Sub(c.epoch)
	return cl.contended
}

// lease is a lease whose release nobody has asked for.
type lease struct {
	id       driver.ID
	token    int64
	deadline time.Time
	copies   bool
}

// leases returns the leases that the session believes to hold.
func (c *claims) leases(now time.Time) []lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []lease
	for o, cl := range c.byOwner {
		if cl.held(now.Sub(c.epoch)) {
			all = append(all, lease{driver.ID{Key: cl.key, Owner: o}, cl.token, c.epoch.Add(cl.deadline), cl.copies})
		}
	}
	return all
}

// lose drops a lease that the server no longer has. It reports whether the session
// believed to hold it.
func (c *claims) lose(l lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[l.id.Owner]
	if cl == nil || !cl.held(time.Since(c.epoch)) || cl.token != l.token {
		return false
	}
	cl.end()
	return true
}

// end notes that the owner has ended. The sweep in add forgets it.
func (cl *claim) end() { cl.over, cl.place, cl.taken, cl.trace = true, nil, 0, nil }

func (cl *claim) held(now time.Duration) bool {
	return !cl.over && cl.place == nil && cl.releaseAskedAt == 0 && cl.deadline > now
}

// extend notes a renewal.
func (c *claims) extend(o driver.Owner, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byOwner[o]; cl != nil {
		cl.deadline = max(cl.deadline, deadline.Sub(c.epoch))
		cl.taken, cl.trace = 0, nil // the token stands there, too
	}
}

// released is what is known of a lease whose release is asked for.
type released struct {
	asked  time.Time     // for the first time
	copies bool          // see place
	taken  time.Duration // see claim
	trace  *driver.Trace
}

// releaseAsked notes that the release of a lease was asked for.
func (c *claims) releaseAsked(o driver.Owner, now time.Time) released {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[o]
	if cl == nil {
		return released{asked: now}
	}
	if cl.again = cl.releaseAskedAt != 0; !cl.again {
		cl.releaseAskedAt = now.Sub(c.epoch)
	}
	known := released{asked: c.epoch.Add(cl.releaseAskedAt), copies: cl.copies}
	if !cl.contended && !cl.copies {
		known.taken, known.trace = time.Duration(cl.taken)*time.Millisecond, cl.trace
	}
	return known
}

// releasedTwice reports whether more than one request to end an owner's lease may have been sent.
func (c *claims) releasedTwice(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[o]
	return cl == nil || cl.again
}

// copied reports whether a request of an owner may be under way still.
func (c *claims) copied(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.byOwner[o]
	return cl != nil && cl.copies
}

// forget ends an owner.
func (c *claims) forget(o driver.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byOwner[o]; cl != nil {
		cl.end()
	}
}
