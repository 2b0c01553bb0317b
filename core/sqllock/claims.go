package sqllock

import (
	"bytes"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// keyState is the state of a key, as read while its row is locked. Its methods do no I/O.
type keyState struct {
	now         int64
	token       int64 // the largest of the claims that have ended
	floorToken  int64 // all new tokens are larger
	ousted      int64 // the largest token whose lease was ousted
	askedAt     int64 // when a request that does not wait last found the key taken
	retainUntil int64 // the row is not swept before
	ended       []byte
	claims      []claim // the waiters in the order of their turns, then the holders
}

// claim is a row of lockaround_claim: one owner's place or lease. Times are in microseconds.
type claim struct {
	owner     driver.Owner
	state     claimState
	turn      int64 // its place in the queue; noTurn if it does not wait
	room      int32 // how many may hold together; 0 is any number
	token     int64
	grantedAt int64
	expiresAt int64 // when the lease or place ends unless it is extended
	ttl       int64 // the longest time that it was ever granted or extended for
	session   sessionID
	listens   bool // the session hears notifications
	from      driver.Origin
}

// claimState tells a place in the queue from a lease.
type claimState int16

const (
	waits claimState = iota // has a place in the queue
	holds                   // has a lease
	kept                    // its lease was released, and the key stays taken for Ending.Keep
)

// noTurn is the turn of a claim that does not wait. It sorts behind all that do.
const noTurn = math.MaxInt64

// sortClaims puts the waiters first, in the order of their turns, and the holders behind
// them.
func (k *keyState) sortClaims() {
	slices.SortFunc(k.claims, func(x, y claim) int {
		switch {
		case x.turn != y.turn && x.turn < y.turn:
			return -1
		case x.turn != y.turn:
			return 1
		case x.token != y.token && x.token < y.token:
			return -1
		case x.token != y.token:
			return 1
		}
		return bytes.Compare(x.owner[:], y.owner[:])
	})
}

// claimOf returns the claim of an owner, or nil. The pointer is valid until k.claims
// changes.
func (k *keyState) claimOf(o driver.Owner) *claim {
	for i := range k.claims {
		if k.claims[i].owner == o {
			return &k.claims[i]
		}
	}
	return nil
}

// head returns the first waiter, or nil.
func (k *keyState) head() *claim {
	if len(k.claims) > 0 && k.claims[0].state == waits {
		return &k.claims[0]
	}
	return nil
}

// lastTurn returns the turn of the last waiter, or 0.
func (k *keyState) lastTurn() int64 {
	var last int64
	for i := range k.claims {
		if c := &k.claims[i]; c.state == waits {
			last = max(last, c.turn)
		}
	}
	return last
}

// fits reports whether a claim with this room can hold the key now. The number of holders
// must be less than its room, and less than the room of each holder.
func (k *keyState) fits(room int32) bool {
	n := int32(len(k.claims) - k.countWaiting())
	for i := range k.claims {
		if c := &k.claims[i]; c.state != waits && c.room != 0 && n >= c.room {
			return false
		}
	}
	return room == 0 || n < room
}

// countWaiting returns how many claims wait.
func (k *keyState) countWaiting() int {
	n := 0
	for i := range k.claims {
		if k.claims[i].state == waits {
			n++
		}
	}
	return n
}

// before returns the owner whose claim ends before a waiter's turn comes: of the waiter before it, or, if
// there is none, of a holder. It is zero if a lease is kept by nobody. sure is false if it may be the
// waiter's turn before that, as several hold the key, and the waiter does not need that all have ended.
func (k *keyState) before(o driver.Owner) (before driver.Owner, sure bool) {
	i := slices.IndexFunc(k.claims, func(c claim) bool { return c.owner == o && c.state == waits })
	if i < 0 {
		return before, false
	}
	if i > 0 {
		return k.claims[i-1].owner, true
	}
	holders := k.claims[k.countWaiting():]
	if len(holders) == 0 || slices.ContainsFunc(holders, func(c claim) bool { return c.state == kept }) {
		return before, false
	}
	if k.claims[i].room == 1 {
		return holders[len(holders)-1].owner, true
	}
	return holders[0].owner, len(holders) == 1
}

// firstExpiry returns when the first of the leases ends, or 0 if there is none.
func (k *keyState) firstExpiry() int64 {
	var end int64
	for i := range k.claims {
		if c := &k.claims[i]; c.state != waits && (end == 0 || c.expiresAt < end) {
			end = c.expiresAt
		}
	}
	return end
}

// nextToken returns the token of a new grant: the server's time in microseconds, or the
// latest token plus one if that is larger. The floor keeps it above the tokens of rows that
// were swept.
func (k *keyState) nextToken() int64 { return max(k.now, k.latestToken()+1, k.floorToken+1) }

// latestToken returns the token of the key's latest grant, or 0 if none is known.
func (k *keyState) latestToken() int64 {
	t := k.token
	for i := range k.claims {
		t = max(t, k.claims[i].token)
	}
	return t
}

// dropClaim removes a claim from k, but not from the table. k keeps what the key's row must
// remember of it.
func (k *keyState) dropClaim(o driver.Owner) {
	i := slices.IndexFunc(k.claims, func(c claim) bool { return c.owner == o })
	if i < 0 {
		return
	}
	c := k.claims[i]
	k.token = max(k.token, c.token)
	k.retainUntil = max(k.retainUntil, c.expiresAt, k.now+rowRetention)
	k.rememberEnded(o)
	k.claims = slices.Delete(k.claims, i, i+1)
}

// rememberEnded adds an owner to those that have ended.
func (k *keyState) rememberEnded(o driver.Owner) {
	if k.isEnded(o) {
		return
	}
	ended := append(slices.Clone(o[:]), k.ended...)
	k.ended = ended[:min(len(ended), maxRememberedEnds*len(o))]
}

// isEnded reports whether an owner is one of those that ended last.
func (k *keyState) isEnded(o driver.Owner) bool {
	for at := 0; at+len(o) <= len(k.ended); at += len(o) {
		if bytes.Equal(k.ended[at:at+len(o)], o[:]) {
			return true
		}
	}
	return false
}

// mayHaveEnded reports whether an owner has ended, or may have ended so long ago that others are
// remembered instead.
func (k *keyState) mayHaveEnded(o driver.Owner) bool {
	return k.isEnded(o) || len(k.ended) == maxRememberedEnds*len(o)
}

// maxRememberedEnds is how many of the owners that ended last a key's row remembers.
const maxRememberedEnds = 8

// rowRetention is how long a key's row stays after its last lease or place, in microseconds:
// the row remembers the key's token and the owners that have ended.
const rowRetention = int64(time.Minute / time.Microsecond)

// room returns how many may hold a key together with such a request; 0 is any number.
func room(m driver.Mode, limit int) int32 {
	switch m {
	case driver.Exclusive:
		return 1
	case driver.Shared:
		return 0
	}
	return int32(min(limit, math.MaxInt32))
}

// mode is the inverse of room.
func mode(room int32) (m driver.Mode, limit int) {
	switch room {
	case 0:
		return driver.Shared, 0
	case 1:
		return driver.Exclusive, 0
	}
	return driver.Semaphore, int(room)
}

func newID(key, owner []byte) driver.ID {
	id := driver.ID{Key: string(key)}
	copy(id.Owner[:], owner)
	return id
}

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
	since          time.Time     // when it was registered

	// Of a waiter in MySQL, see sleep.go.
	before driver.Owner // the claim that ends before its turn comes; zero if nobody has a baton for it
	sure   bool         // it cannot be its turn before that
	sleeps bool         // a goroutine sleeps for it
	asleep bool         // and is to be woken in time
	left   bool         // it is no place any more
	told   kit.Signal   // set when before or left may have changed
}

func (c *ownClaims) init() {
	c.byOwner, c.byHash = make(map[driver.Owner]*ownClaim), make(map[string]*ownClaim)
	c.changed, c.manyAdded = kit.NewSignal(), kit.NewSignal()
	c.crowded = kit.NewCrowded()
}

// addPlace registers a place in the queue of a key whose first lease ends at expires.
func (c *ownClaims) addPlace(id driver.ID, ttl time.Duration, a answer, asleep bool) *ownClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := &ownClaim{id: id, wake: kit.NewSignal(), told: kit.NewSignal(), placeTTL: ttl, ahead: -1, before: a.before, sure: a.sure, asleep: asleep}
	c.expectExpiry(a.sentAt.Add(a.remaining))
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
	own.version, own.since = c.version, time.Now()
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

// has reports whether an owner is known.
func (c *ownClaims) has(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byOwner[o] != nil
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

// pollPlan is what a session polls for.
type pollPlan struct {
	version    uint64        // claims that change later have a larger one, and the poll does not judge them
	found      bool          // there are claims
	ttl        time.Duration // the shortest time that a place lasts, or 0 if none waits
	nextExpiry time.Time     // ownClaims.nextExpiry
	asleep     bool          // all places are asleep
	heldSince  time.Time     // when the oldest lease was registered; zero if there is none
}

// beginPoll starts a poll. Leases that the server has forgotten, or soon will, whether or not it has heard
// of their release, are polled no more.
func (c *ownClaims) beginPoll() pollPlan {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	p := pollPlan{version: c.version, nextExpiry: c.nextExpiry, asleep: true}
	for o, own := range c.byOwner {
		switch {
		case !own.releaseEnds.IsZero() && time.Now().After(own.releaseEnds):
			c.forgetLocked(o)
			continue
		case own.held:
			if p.heldSince.IsZero() || own.since.Before(p.heldSince) {
				p.heldSince = own.since
			}
			continue
		case p.ttl == 0 || own.placeTTL < p.ttl:
			p.ttl = own.placeTTL
		}
		p.asleep = p.asleep && own.asleep
	}
	p.found = len(c.byOwner) > 0
	return p
}

// tell tells a waiter's sleeper what a decision has found.
func (c *ownClaims) tell(place *ownClaim, a answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !a.sentAt.IsZero() { // else the server could not be asked
		place.before, place.sure = a.before, a.sure
	}
	if a.before == (driver.Owner{}) && a.remaining > 0 {
		c.expectExpiry(a.sentAt.Add(a.remaining))
	}
	place.told.Set()
}

// leave ends a place: its waiter has been granted a lease, or has left.
func (c *ownClaims) leave(place *ownClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	place.left = true
	place.told.Set()
}

// wakeSleepers has all sleepers look again.
func (c *ownClaims) wakeSleepers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, own := range c.byOwner {
		if !own.held {
			own.asleep = false
			own.told.Set()
		}
	}
	c.changed.Set()
}

// nextToSleep returns a place that nobody sleeps for, or nil. The caller sleeps for it.
func (c *ownClaims) nextToSleep() *ownClaim {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, own := range c.byOwner {
		if !own.held && !own.left && !own.sleeps {
			own.sleeps = true
			return own
		}
	}
	return nil
}

// sleepsBehind returns before and sure, and whether the place has been left.
func (c *ownClaims) sleepsBehind(place *ownClaim) (before driver.Owner, sure, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return place.before, place.sure, place.left
}

// setAsleep notes whether a waiter is to be woken in time.
func (c *ownClaims) setAsleep(place *ownClaim, asleep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if place.asleep != asleep {
		place.asleep = asleep
		c.changed.Set()
	}
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
