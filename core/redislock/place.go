package redislock

import (
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

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
		Owner: r.Owner, Channel: s.channel, Length: r.TTL, PlaceTTL: placeTTL, Wait: r.Wait, Mode: r.Mode, Limit: r.Limit, Trace: r.Trace,
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
