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
// A lease is learnt from a reply or from a push. Its deadline counts from before
// the send of the request whose effect is counted: of the one that was answered
// "granted", or, for a push, of the last enrolment or refresh that was answered
// "queued", since that has set how long the place lasted.
type place struct {
	s     *session
	id    driver.ID
	key   string // as protocol.Key returns it
	r     driver.Request
	enrol time.Duration
	args  protocol.AcquireArgs // of the next request

	// Guarded by s.claims.mu.
	wake  kit.Signal    // nil until Acquire has the place
	left  bool          // Begin has left it to Acquire
	push  protocol.Push // the one with the greatest token
	ends  time.Time     // when a push said that the key is free
	asked bool          // to refresh at once

	// Of Acquire's goroutine, or Begin's before that.
	brief      bool // it is Begin's, which has no time to renew
	answers    chan *call
	unanswered []*request // oldest first
	opening    request    // the first
	room       [1]*request
	grant      driver.Grant
	sent       bool        // a request may have been executed
	clean      bool        // and certainly left nothing behind
	known      bool        // no request may create the place any more
	replaced   bool        // the lease to replace has ended
	gone       atomic.Bool // Acquire has returned, and the owner is to be ended
	late       atomic.Bool // it has been, after the answer that came last
	queued     bool        // the server has confirmed the place
	first      time.Time   // before the first request
	acked      time.Time   // before the last request that was answered "queued"
	astray     bool        // that answer
	floor      int64       // the latest token seen with "queued": a push must name a later one
	holderEnds time.Time   // when the lease ends unless it is renewed
	told       time.Time   // when a push said that it ends, which nobody renews
	next       time.Time   // when to ask again
	pause      time.Duration
	recheck    bool // once the place is confirmed: the subscription came up meanwhile
}

// request is an unanswered call of a place.
type request struct {
	call
	room  [6]any // for its arguments
	ends  bool   // it ends the lease to replace
	until time.Time
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
	p.leave(err)
	return g, err
}

// newPlace returns a place: Begin's, unless it is prepared for waiting.
func (s *session) newPlace(r driver.Request, key string, now time.Time) *place {
	p, ok := s.places.Get().(*place)
	if !ok {
		p = new(place)
	}
	enrol, replied := protocol.Enrol(r.TTL), p.opening.replied
	*p = place{s: s, id: r.ID, key: key, r: r, enrol: enrol, brief: true, pause: min(firstPause, enrol/12), first: now, next: now}
	p.opening.replied, p.unanswered = replied, p.room[:0]
	p.args = protocol.AcquireArgs{
		Owner: r.Owner, Channel: s.channel, Length: r.TTL, Enrol: enrol, Wait: r.Wait, Mode: r.Mode, Limit: r.Limit,
	}
	return p
}

// open prepares the place for waiting. Others may know it already: then s.claims.mu is
// held.
func (p *place) open() {
	p.brief, p.answers, p.wake = false, make(chan *call, maxUnanswered), kit.NewSignal()
}

// take has Acquire look at an answer, or what is owed if there is nobody left to look.
func (p *place) take(c *call) {
	p.answers <- c
	if p.gone.Load() {
		p.endLate()
	}
}

// endLate has the owner ended whose creating request was answered after Acquire had returned.
func (p *place) endLate() {
	if !p.late.Swap(true) {
		p.owe(0)
		p.s.cleaner.owed.Done()
	}
}

// owe has the owner ended.
func (p *place) owe(after time.Duration) {
	p.s.cleaner.owe(p.key, p.id.Owner, 0, p.r.TTL, after)
}

// leave cleans up after an Acquire that returns err.
func (p *place) leave(err error) {
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
		if p.sent && !p.clean {
			p.end(underWay && !p.known)
		}
	}
}

// end has the owner ended. An ending on another connection may overtake a request that
// creates the place, which then stays in the queue until it lapses: so it waits for the
// answer to that, for as long as an answer mostly takes, and what is answered later is
// ended again.
func (p *place) end(created bool) {
	if !created {
		p.owe(0)
		return
	}
	p.owe(firstPause)
	p.s.cleaner.owed.Add()
	p.gone.Store(true)
	if len(p.answers) > 0 { // before somebody could know that Acquire has returned
		p.endLate()
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

// run asks, and asks again, until the lease is granted or cannot be.
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
		if p.silent(now) {
			return driver.Grant{}, silence(p.s.timeout)
		}
		if p.mayAsk() && !p.next.After(now) {
			c := p.request(now)
			c.done = p.take
			p.s.calls.send(c)
		}
		timer.Reset(p.event().Sub(now))

		var g *driver.Grant
		var err error
		select {
		case c := <-p.answers:
			g, err = p.answer(ctx, c)
		case <-p.wake:
			g, err = p.woken(ctx)
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

// mayAsk reports whether one more request may be under way. The request that
// creates a place is alone.
func (p *place) mayAsk() bool {
	if !p.known {
		return len(p.unanswered) == 0
	}
	return len(p.unanswered) < maxUnanswered
}

// silent reports whether the server has been silent for an attempt's time and
// has forgotten the place by now. A refresh that goes unanswered is repeated as
// long as the place may be there.
func (p *place) silent(now time.Time) bool {
	return len(p.unanswered) > 0 && !p.unanswered[0].until.After(now) && !p.alive(now)
}

// event is when to look again if nothing happens.
func (p *place) event() time.Time {
	at := p.next
	if len(p.unanswered) > 0 {
		hopeless := driver.Later(p.unanswered[0].until, p.limit())
		if !p.mayAsk() || hopeless.Before(at) {
			at = hopeless
		}
	}
	return at
}

// limit is when the server may have forgotten the place; zero if it was never
// confirmed.
func (p *place) limit() time.Time {
	if !p.queued {
		return time.Time{}
	}
	return driver.Deadline(p.acked, p.enrol)
}

func (p *place) alive(now time.Time) bool { return driver.Remaining(p.limit(), now) > 0 }

// request makes the request that fits what is known, to be sent at once.
func (p *place) request(now time.Time) *call {
	key := p.key
	rq := &p.opening
	if rq.script != nil {
		rq = new(request)
	}
	rq.until = now.Add(p.s.timeout)
	if old := p.r.Replace; old != nil && !p.known {
		rq.ends = true
		next := &protocol.Next{
			Owner: p.id.Owner, Channel: p.s.channel, Length: p.r.TTL, Enrol: p.enrol,
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
	// A little less than a third of what the place lasts, so that two may be
	// lost, and different for each waiter.
	p.next = now.Add(time.Duration((0.28 + 0.04*p.s.jitter()) * float64(p.enrol)))
	return &rq.call
}
