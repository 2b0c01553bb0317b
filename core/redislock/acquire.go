package redislock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// maxUnanswered bounds the requests of one place that are under way at once.
const maxUnanswered = 4

// place is one running Acquire and, while it waits, the process's place in the
// queue of a key.
//
// A reply or a push grants the lease. After a reply the deadline counts from just before
// the request was sent. After a push it counts from just before the last request that was
// answered "queued": that request set how long the place lasts, and with it the lease.
type place struct {
	s        *session
	id       driver.ID
	key      string // as protocol.Key returns it
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
	inBegin          bool // Begin runs it, which has no time to renew
	answers          chan *call
	unanswered       []*request // oldest first
	firstRequest     request    // its memory is part of the place
	firstSlot        [1]*request
	grant            driver.Grant
	sent             bool        // a request may have been executed
	leftNothing      bool        // none of them has left anything at the server
	known            bool        // the server knows the owner: requests no longer create it
	replaced         bool        // the lease to replace has ended
	abandoned        atomic.Bool // Acquire has returned an error, and the owner is to be ended
	endedLate        atomic.Bool // it was owed once more after a late answer
	queued           bool        // the server has confirmed the place
	began            time.Time   // before the first request
	confirmedSince   time.Time   // just before the last request that was answered "queued"
	misrouted        bool        // the answer to that request was
	seenToken        int64       // the latest token of a "queued" reply; a grant has a greater one
	holderEnds       time.Time   // when the lease ends unless it is renewed
	announcedEnd     time.Time   // when a lease ends that nobody renews, as a push said
	next             time.Time   // when to ask again
	pause            time.Duration
	refreshOnceKnown bool // the subscription came up before the place was confirmed
}

// request is an unanswered call of a place.
type request struct {
	call
	room         [6]any // for its arguments
	endsReplaced bool   // it ends the lease to replace
	until        time.Time
}

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	s.listener.ensure()
	p := s.resume(r)
	g, err := p.run(ctx)
	p.cleanUp(err)
	return g, err
}

// resume returns the place that Begin has parked, or a new one.
func (s *session) resume(r driver.Request) *place {
	if p := s.claims.resume(r.Owner); p != nil {
		return p
	}
	p := s.newPlace(r, protocol.Key(r.Key), time.Now())
	if r.Replace != nil {
		s.claims.releaseAsked(r.Replace.Owner, p.began)
	}
	p.prepareToWait()
	s.claims.add(p)
	return p
}

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
		Owner: r.Owner, Channel: s.channel, Length: r.TTL, PlaceTTL: placeTTL, Wait: r.Wait, Mode: r.Mode, Limit: r.Limit,
	}
	return p
}

// prepareToWait makes what Acquire needs to wait. If the place is one of the claims
// already, s.claims.mu is held.
func (p *place) prepareToWait() {
	p.inBegin, p.answers, p.wake = false, make(chan *call, maxUnanswered), kit.NewSignal()
}

// run sends requests until the lease is granted or cannot be.
func (p *place) run(ctx context.Context) (driver.Grant, error) {
	if err := p.s.check(p.r); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, err
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		if p.givenUp(now) {
			return driver.Grant{}, silence(p.s.timeout)
		}
		if p.mayAsk() && !p.next.After(now) {
			c := p.request(now)
			c.done = p.receive
			p.s.calls.send(c)
		}
		timer.Reset(p.nextLook().Sub(now))

		var g *driver.Grant
		var err error
		select {
		case c := <-p.answers:
			g, err = p.answer(ctx, c)
		case <-p.wake:
			g, err = p.takeNotes(ctx)
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		case <-p.s.Closing:
			err = driver.ErrClosed
		}
		switch {
		case err != nil:
			return driver.Grant{}, err
		case g != nil:
			return *g, nil
		}
	}
}

func (s *session) check(r driver.Request) error {
	switch {
	case r.Mode > driver.Semaphore:
		return &driver.PermanentError{Err: fmt.Errorf("redis: mode %d is not offered", r.Mode)}
	case r.Mode == driver.Semaphore && r.Limit < 1:
		return &driver.PermanentError{Err: fmt.Errorf("redis: a semaphore with a limit of %d; at least 1 is needed", r.Limit)}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: fmt.Errorf("redis: a TTL of %v is too short; use at least %v", r.TTL, minTTL)}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("redis: the lease to replace is of another key")}
	}
	return nil
}

// mayAsk reports whether one more request may be under way. The request that
// creates a place is alone.
func (p *place) mayAsk() bool {
	if !p.known {
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

// request returns the next request. The caller sends it at once.
func (p *place) request(now time.Time) *call {
	key := p.key
	rq := &p.firstRequest
	if rq.script != nil {
		rq = new(request)
	}
	rq.until = now.Add(p.s.timeout)
	if old := p.r.Replace; old != nil && !p.known {
		rq.endsReplaced = true
		next := &protocol.Next{
			Owner: p.id.Owner, Channel: p.s.channel, Length: p.r.TTL, PlaceTTL: p.placeTTL,
			Mode: p.r.Mode, Limit: p.r.Limit,
		}
		rq.command = endCommand(key, protocol.EndArgs{Owner: old.Owner, Next: next})
	} else {
		if after := p.r.After; after != nil && !p.known {
			rq.before = &call{command: endCommand(key, protocol.EndArgs{Owner: after.Owner}), done: func(*call) {}}
		}
		p.args.Create = !p.known
		rq.command = command{script: &protocol.Acquire, key: key, args: p.args.Append(rq.room[:0])}
	}
	p.unanswered = append(p.unanswered, rq)
	// Refresh after a little less than a third of the place's TTL, so that two requests
	// may be lost. Each waiter has a time of its own.
	p.next = now.Add(time.Duration((0.28 + 0.04*p.s.jitter()) * float64(p.placeTTL)))
	return &rq.call
}

// receive passes an answer to Acquire. If Acquire has returned, it ends the owner again.
func (p *place) receive(c *call) {
	p.answers <- c
	if p.abandoned.Load() {
		p.endLate()
	}
}

// cleanUp runs when Begin or Acquire returns err.
func (p *place) cleanUp(err error) {
	underWay := false
	for _, rq := range p.unanswered {
		if !rq.withdraw() {
			p.sent, underWay = true, true
		}
	}
	if old := p.r.Replace; old != nil {
		p.s.claims.forget(old.Owner)
		if !p.replaced {
			p.s.cleaner.owe(p.key, old.Owner, 0, p.r.TTL, 0)
		}
	}
	if err != nil {
		p.s.claims.forget(p.id.Owner)
		if p.sent && !p.leftNothing {
			p.end(underWay && !p.known)
		}
	}
}

// end tells the cleaner to end the owner. If a request that creates the place is under way,
// an ending on another connection may overtake it, and the place would stay in the queue
// until it expires. So the ending waits for the usual time of an answer. If the answer
// comes later than that, the owner is ended again.
func (p *place) end(creating bool) {
	if !creating {
		p.owe(0)
		return
	}
	p.owe(firstPause)
	p.s.cleaner.owed.Add()
	p.abandoned.Store(true)
	if len(p.answers) > 0 { // before somebody could know that Acquire has returned
		p.endLate()
	}
}

// endLate ends an owner whose creating request was answered after Acquire had returned.
func (p *place) endLate() {
	if !p.endedLate.Swap(true) {
		p.owe(0)
		p.s.cleaner.owed.Done()
	}
}

// owe tells the cleaner to end the owner.
func (p *place) owe(after time.Duration) {
	p.s.cleaner.owe(p.key, p.id.Owner, 0, p.r.TTL, after)
}
