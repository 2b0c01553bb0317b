package redislock

import (
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
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

// place is one running Acquire and, while it waits, the process's place in the
// queue of a key.
//
// A reply or a push grants the lease. After a reply the deadline counts from just before
// the request was sent. After a push it counts from just before the last request that was
// answered "queued": that request set how long the place lasts, and with it the lease.
type place struct {
	s        *session
	id       driver.ID
	key      string // in Redis
	r        driver.Request
	placeTTL time.Duration
	args     protocol.AcquireArgs // of the next request

	// Guarded by s.claims.mu.
	wake       kit.Signal    // nil before prepareToWait
	parked     bool          // by Begin, for Acquire
	push       protocol.Push // the grant with the greatest token
	freeAt     time.Time     // when the key becomes free, as a push said
	refreshNow bool          // ask the server at once

	// Used by one goroutine: that of Begin, and later that of Acquire.
	inBegin          bool // Begin runs it: there is no time to renew
	answers          chan *call
	unanswered       []*request // oldest first
	firstRequest     request    // its memory is part of the place
	firstSlot        [1]*request
	grant            driver.Grant
	sent             bool          // a request may have been executed
	leftNothing      bool          // no request has left anything at the server
	known            bool          // the server knows the owner: requests no longer create it
	burnt            bool          // the owner has ended before
	token            int64         // of the owner's lease, if it asks for it once more
	refused          bool          // the key was taken when it was asked for by Take
	held             bool          // the lease is granted, and its token is to be drawn yet
	heldUntil        time.Time     // the deadline of that lease
	copies           bool          // a request that creates may be under way, or a copy of one
	taken            time.Duration // the length of the lease, if Take has granted it; else 0
	replaced         bool          // the lease to replace has ended
	replaces         released      // what is known of that
	ousted           atomic.Bool   // a push has said that its lease was taken away
	abandoned        atomic.Bool   // Acquire has returned an error, and the owner is to be ended
	endedLate        atomic.Bool   // the owner was ended once more after a late answer: endLate
	moving           bool          // a place cannot be made until a slot has moved
	queued           bool          // the server has confirmed the place
	began            time.Time     // before the first request
	confirmedSince   time.Time     // just before the last request that was answered "queued"
	misrouted        bool          // that answer was: see reply
	seenToken        int64         // the latest token of a "queued" reply; a grant has a greater one
	holderEnds       time.Time     // when the holder's lease ends unless it is renewed
	announcedEnd     time.Time     // the same, as a push said, or when the key is no longer kept
	next             time.Time     // when to ask again
	pause            time.Duration // before the next repetition of a request that failed
	refreshOnceKnown bool          // the subscription came up before the place was confirmed
}

// request is an unanswered call of a place.
type request struct {
	call
	room         [7]any // for its arguments
	takes        bool   // it is Take
	creates      bool   // it may make a place or a lease
	endsReplaced bool   // it ends the lease to replace
	until        time.Time
}

// maxUnanswered bounds the requests of one place that are under way at once.
const maxUnanswered = 4

// newPlace returns a place for Begin. Acquire calls prepareToWait on it first.
func (s *session) newPlace(r driver.Request, key string, now time.Time) *place {
	p, ok := s.places.Get().(*place)
	if !ok {
		p = new(place)
	}
	placeTTL, replied := protocol.PlaceTTL(r.TTL), p.firstRequest.replied
	*p = place{s: s, id: r.ID, key: key, r: r, placeTTL: placeTTL, inBegin: true, pause: min(firstPause, placeTTL/12), began: now, next: now}
	p.firstRequest.replied, p.unanswered = replied, p.firstSlot[:0]
	p.args = protocol.AcquireArgs{
		Owner: r.Owner, Channel: s.channel, Length: r.TTL, PlaceTTL: placeTTL, Wait: r.Wait, MaxWaiting: r.MaxWaiting, Mode: r.Mode, Limit: r.Limit, Trace: r.Trace,
	}
	return p
}

// prepareToWait makes what Acquire needs to wait. If the place is one of the claims
// already, s.claims.mu is held.
func (p *place) prepareToWait() {
	p.inBegin, p.answers, p.wake = false, make(chan *call, maxUnanswered), kit.NewSignal()
}

// mayAsk reports whether one more request may be under way. The request that
// creates a place is alone.
func (p *place) mayAsk() bool {
	if !p.known || p.held {
		return len(p.unanswered) == 0
	}
	return len(p.unanswered) < maxUnanswered
}

// givenUp reports whether the server has not answered for an attempt's time and may have
// forgotten the place. While the place may be there, an unanswered refresh is repeated.
func (p *place) givenUp(now time.Time) bool {
	return len(p.unanswered) > 0 && !p.unanswered[0].until.After(now) && !p.alive(now)
}

// nextLook returns when run has to look again if nothing happens.
func (p *place) nextLook() time.Time {
	at := p.next
	if len(p.unanswered) > 0 {
		hopeless := driver.Later(p.unanswered[0].until, p.forgottenAt())
		if !p.mayAsk() || hopeless.Before(at) {
			at = hopeless
		}
	}
	return at
}

// askAt makes the next request leave at t at the latest.
func (p *place) askAt(t time.Time) {
	if t.Before(p.next) {
		p.next = t
	}
}

func (p *place) alive(now time.Time) bool { return driver.Remaining(p.forgottenAt(), now) > 0 }

// forgottenAt returns when the server may have forgotten the place. It is zero if the
// server never confirmed the place.
func (p *place) forgottenAt() time.Time {
	if !p.queued {
		return time.Time{}
	}
	return driver.Deadline(p.confirmedSince, p.placeTTL)
}

// answeredRequest removes the request that was answered, and returns it.
func (p *place) answeredRequest(c *call) *request {
	for i, rq := range p.unanswered {
		if &rq.call == c {
			p.unanswered = append(p.unanswered[:i], p.unanswered[i+1:]...)
			return rq
		}
	}
	return &request{}
}

// noteGrant keeps a push that grants the lease. s.claims.mu is held.
func (p *place) noteGrant(push protocol.Push) {
	if push.Token > p.push.Token {
		p.push = push
	}
	p.wake.Set()
}

// noteFreeAt keeps when the key becomes free, as a push says. s.claims.mu is held.
func (p *place) noteFreeAt(push protocol.Push) {
	p.freeAt = time.Now().Add(push.Left + time.Millisecond)
	p.wake.Set()
}

// noteRefresh makes the place ask the server at once. s.claims.mu is held.
func (p *place) noteRefresh() {
	p.refreshNow = true
	p.wake.Set()
}

// busyKeys remembers which keys somebody else has wanted lately. Two keys may share a place: that
// costs a key that nobody else wants the dearer script, and nothing else.
type busyKeys struct {
	at [1024]atomic.Int64 // ms of the Unix time
}

// busyFor is how long a key counts as wanted.
const busyFor = time.Second

var busySeed = maphash.MakeSeed()

func (b *busyKeys) of(key string) *atomic.Int64 {
	return &b.at[maphash.String(busySeed, key)%uint64(len(b.at))]
}

// note notes that somebody else wants a key.
func (b *busyKeys) note(key string, now time.Time) { b.of(key).Store(now.UnixMilli()) }

func (b *busyKeys) noteIf(wanted bool, key string, now time.Time) {
	if wanted {
		b.note(key, now)
	}
}

// lately reports whether somebody else has wanted a key.
func (b *busyKeys) lately(key string, now time.Time) bool {
	at := b.of(key).Load()
	return at != 0 && now.UnixMilli()-at < busyFor.Milliseconds()
}
