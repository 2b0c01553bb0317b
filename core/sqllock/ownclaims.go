package sqllock

import (
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// ownClaims are the places and leases of one session.
type ownClaims struct {
	mu         sync.Mutex
	byOwner    map[driver.Owner]*ownClaim
	byHash     map[string]*ownClaim
	version    uint64     // counts changes and polls
	usedUntil  time.Time  // when a claim was last added or released, or the last lease would have ended
	sweptAt    time.Time  // when the last sweep began
	added      int        // claims since then
	manyAdded  kit.Signal // wakes sweepLoop
	changed    kit.Signal // wakes pollLoop
	crowded    *kit.Crowded
	nextExpiry time.Time // the first end of a lease that a waiter waits for; zero if unknown
}

// ownClaim is what a session knows of one of its own claims.
type ownClaim struct {
	id             driver.ID
	wake           kit.Signal    // set when a waiter should ask the server
	held           bool          // it is a lease
	contended      bool          // what the holder was last told
	askedAt        int64         // the latest keyState.askedAt that the holder was told of
	releaseAskedAt time.Time     // when its release was first requested; zero before
	releaseEnds    time.Time     // when its release is no longer repeated; zero before
	version        uint64        // ownClaims.version when it became a place or a lease, or was heard of last
	placeTTL       time.Duration // of a waiter
	ahead          int64         // how many waiters the last poll found before it; -1 before the first
}

func (c *ownClaims) init() {
	c.byOwner, c.byHash = make(map[driver.Owner]*ownClaim), make(map[string]*ownClaim)
	c.changed, c.manyAdded = kit.NewSignal(), kit.NewSignal()
	c.crowded = kit.NewCrowded()
}

// addPlace registers a place in the queue of a key whose first lease ends at expires.
func (c *ownClaims) addPlace(id driver.ID, ttl time.Duration, expires time.Time) *ownClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := &ownClaim{id: id, wake: kit.NewSignal(), placeTTL: ttl, ahead: -1}
	c.expectExpiry(expires)
	c.put(own)
	return own
}

// addLease registers a lease. askedAt is the server's time of the grant: earlier requests
// that found the key taken do not concern it.
func (c *ownClaims) addLease(g driver.Grant, askedAt int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.put(&ownClaim{id: g.ID, held: true, contended: g.Contended, askedAt: askedAt})
	c.usedUntil = driver.Later(c.usedUntil, g.Deadline)
}

// expectExpiry makes the next poll happen when a lease expires that one of the waiters waits
// for. The caller has locked c.
func (c *ownClaims) expectExpiry(end time.Time) {
	if c.nextExpiry.IsZero() || end.Before(c.nextExpiry) {
		c.nextExpiry = end
		c.changed.Set()
	}
}

func (c *ownClaims) put(own *ownClaim) {
	if c.added++; c.added == sweepAfter {
		c.manyAdded.Set()
	}
	c.usedUntil = driver.Later(c.usedUntil, time.Now())
	c.version++
	own.version = c.version
	c.byOwner[own.id.Owner] = own
	c.byHash[ownerHash(own.id.Owner)] = own
	c.changed.Set()
}

// noteContended records what the engine hears of a lease other than by a poll. A poll that is under
// way may be older.
func (c *ownClaims) noteContended(o driver.Owner, waiting bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if own := c.byOwner[o]; own != nil && own.held {
		c.hear(own, waiting)
	}
}

// hear is noteContended with c locked.
func (c *ownClaims) hear(own *ownClaim, waiting bool) {
	c.version++
	own.contended, own.version = waiting, c.version
}

// noteRelease records that a release was requested, which is not repeated after ends. It returns
// when that first happened.
func (c *ownClaims) noteRelease(id driver.ID, now, ends time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.usedUntil = driver.Later(driver.Later(c.usedUntil, now), ends)
	own := c.byOwner[id.Owner]
	if own == nil {
		return now
	}
	if own.contended {
		c.crowded.Note(id.Key, true)
	}
	if own.releaseAskedAt.IsZero() {
		own.releaseAskedAt = now
	}
	own.releaseEnds = driver.Later(own.releaseEnds, ends)
	return own.releaseAskedAt
}

// beginSweep reports whether a sweep may find rows of this session: the last one began before they were
// unused for as long as rows stay.
func (c *ownClaims) beginSweep(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := !c.usedUntil.IsZero() && c.sweptAt.Before(c.usedUntil.Add(time.Duration(rowRetention)*time.Microsecond+time.Second))
	c.sweptAt, c.added = now, 0
	return left
}

// notSwept notes that the sweep which has begun last has failed.
func (c *ownClaims) notSwept() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweptAt = time.Time{}
}

// forget removes an owner.
func (c *ownClaims) forget(o driver.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(o)
}

// forgetLocked removes an owner. The caller has locked c.
func (c *ownClaims) forgetLocked(o driver.Owner) {
	delete(c.byOwner, o)
	delete(c.byHash, ownerHash(o))
}

// beginPoll starts a poll. Claims that change later have a larger version, and the poll does
// not judge them. Leases that the server has forgotten, or soon will, whether or not it has heard of
// their release, are polled no more. ttl is the shortest time that a place lasts, or 0 if none waits.
func (c *ownClaims) beginPoll() (version uint64, found bool, ttl time.Duration, nextExpiry time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	for o, own := range c.byOwner {
		switch {
		case !own.releaseEnds.IsZero() && time.Now().After(own.releaseEnds):
			c.forgetLocked(o)
		case !own.held && (ttl == 0 || own.placeTTL < ttl):
			ttl = own.placeTTL
		}
	}
	return c.version, len(c.byOwner) > 0, ttl, c.nextExpiry
}

// wakeWaiters wakes waiters, so that they ask the server again.
func (c *ownClaims) wakeWaiters(owners ...driver.Owner) {
	if len(owners) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range owners {
		if own := c.byOwner[o]; own != nil && !own.held {
			own.wake.Set()
		}
	}
}

// wakeAllWaiters wakes every waiter of the session.
func (c *ownClaims) wakeAllWaiters() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, own := range c.byOwner {
		if !own.held {
			own.wake.Set()
		}
	}
}
