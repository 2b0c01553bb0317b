package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// answer handles the reply to one of the place's requests. If it returns neither a grant
// nor an error, the acquisition goes on.
func (p *place) answer(ctx context.Context, c *call) (*driver.Grant, error) {
	rq := p.answeredRequest(c)
	p.copies = p.copies || rq.creates && !c.reply.sentOnce
	if c.reply.err != nil {
		if errors.Is(c.reply.err, driver.ErrClosed) {
			return nil, driver.ErrClosed
		}
		p.sent = true
		return nil, p.failed(c.reply.err)
	}
	p.sent = true
	drawn := c.reply.drawn.Token()
	p.s.raise(c)
	switch {
	case rq.script == nil:
		return p.tokened(ctx, c, drawn, p.heldUntil, false)
	case rq.endsReplaced:
		return p.answerEnd(ctx, c)
	case rq.takes && c.reply.value == int64(1):
		p.taken = p.r.TTL
		return p.tokened(ctx, c, drawn, p.granted(c), false)
	case rq.takes && p.s.sharesKeys():
		return p.elsewhere(ctx, c, drawn)
	case rq.takes:
		p.refused, p.next = true, time.Now()
		p.s.busy.note(p.key, p.next)
		return nil, nil
	}
	r, err := protocol.ParseAcquire(c.reply.value)
	if err != nil {
		return nil, classify(err)
	}
	if r.More {
		p.next = time.Now()
	}
	switch r.Status {
	case protocol.Granted:
		if p.queued && (p.holderEnds.IsZero() || c.sent.Before(p.holderEnds)) {
			p.s.listener.noteMissed()
		}
		p.s.busy.noteIf(r.Waiting > 0, p.key, c.sent)
		return p.tokened(ctx, c, r.Token, p.granted(c), r.Waiting > 0)
	case protocol.Queued:
		return nil, p.enqueued(c, r.Token, r.Head, r.Left, r.Taker)
	case protocol.Busy, protocol.Full:
		if r.More {
			return nil, nil
		}
		p.leftNothing = !p.copies
		p.s.busy.note(p.key, c.sent)
		return nil, &driver.HeldError{Full: r.Status == protocol.Full, RetryAfter: r.Left, Holder: originOf(r.Taker)}
	default: // Over
		return nil, driver.ErrPlaceLost
	}
}

// answerEnd handles the reply to the request that ends the lease to replace.
func (p *place) answerEnd(ctx context.Context, c *call) (*driver.Grant, error) {
	r, err := protocol.ParseEnd(c.reply.value)
	if err != nil {
		return nil, classify(err)
	}
	p.known = true
	p.replaced = r.Status == protocol.Ended || !c.reply.misrouted
	switch r.Next {
	case protocol.Granted:
		return p.tokened(ctx, c, r.Token, p.granted(c), r.Waiting > 0)
	case protocol.Queued:
		err := p.enqueued(c, r.Token, r.Head, r.Left, r.Taker)
		if r.More {
			p.next = time.Now()
		}
		return nil, err
	case protocol.Over:
		return nil, driver.ErrPlaceLost
	}
	// The lease had ended before: it expired, or an earlier copy of this request ended it
	// and the reply was lost. An acquisition finds out what the owner got.
	p.next = time.Now()
	return nil, nil
}

// tokened returns the lease that c has granted, or whose token c has drawn. If there is no token yet, or
// the answer to the draw was lost, the next request draws one. A store that refuses that has the last word.
func (p *place) tokened(ctx context.Context, c *call, token int64, deadline time.Time, contended bool) (*driver.Grant, error) {
	if err := c.reply.given(); err != nil {
		return nil, err
	}
	if token == 0 {
		token = p.token
	}
	if token == 0 && isReply(c.reply.drew) {
		return nil, c.reply.drew
	}
	if token == 0 {
		p.held, p.heldUntil, p.next = true, deadline, time.Now()
		return nil, nil
	}
	return p.claim(ctx, token, deadline, contended)
}

// raise has the stream go on with the next ms, if many tokens have been drawn in this one.
func (s *session) raise(c *call) {
	if id := c.reply.drawn.Raise(); id != "" {
		s.calls.send(&call{command: command{key: c.key, id: id}, done: func(*call) {}})
	}
}

// granted returns the deadline of a lease that a reply grants. It is zero if another
// server may have granted the key to somebody else.
func (p *place) granted(c *call) time.Time {
	if c.reply.misrouted {
		return time.Time{}
	}
	return driver.Deadline(c.sent, p.r.TTL)
}

// enqueued handles a reply that confirms the place in the queue.
func (p *place) enqueued(c *call, token int64, head bool, left time.Duration, taker protocol.Taker) error {
	if !p.r.Wait {
		return &driver.HeldError{RetryAfter: left, Holder: originOf(taker)}
	}
	p.s.busy.note(p.key, c.sent)
	first := !p.queued
	p.known, p.queued = true, true
	p.confirmedSince = driver.Later(p.confirmedSince, c.sent)
	p.misrouted = c.reply.misrouted
	p.seenToken = max(p.seenToken, token)
	p.pause = min(firstPause, p.placeTTL/12)
	// Ask when the holder's lease ends: that wakes the queue after a crash, a lost push or
	// MinHold. The server counts in milliseconds. The first of the queue asks at that time;
	// the others ask a little later, in case those before them have crashed too.
	now := time.Now()
	ends := now.Add(left + time.Millisecond)
	if p.announcedEnd.After(now) && p.announcedEnd.Before(ends) { // the push is newer than this reply
		ends = p.announcedEnd
	}
	p.holderEnds = ends
	if !head {
		ends = ends.Add(time.Duration((0.04 + 0.06*p.s.jitter()) * float64(p.placeTTL)))
	}
	p.askAt(ends)
	if p.refreshOnceKnown {
		p.next, p.refreshOnceKnown = time.Now(), false
	}
	driver.TakenBy(p.s.sink, p.id, originOf(taker))
	if first {
		p.s.sink.Waiting(p.id)
	}
	return nil
}

// failed returns err if the acquisition cannot go on after a failed attempt. It goes on
// while the server remembers a confirmed place, and while a lease is being replaced: a
// repetition finds out what became of that. It also goes on while a slot of a Cluster moves, which
// keeps the queue of a key that is held from being made.
func (p *place) failed(err error) error {
	now := time.Now()
	permanent := new(driver.PermanentError)
	replacing := p.r.Replace != nil && now.Before(p.began.Add(p.placeTTL))
	moving := isMoving(err) && p.r.Wait
	if errors.As(err, &permanent) || !p.alive(now) && !replacing && !moving {
		return err
	}
	if moving && !p.queued && !p.moving { // the key is held: else it could be taken
		p.moving = true
		p.s.sink.Waiting(p.id)
	}
	p.askAt(now.Add(time.Duration((0.5 + p.s.jitter()) * float64(p.pause))))
	p.pause = min(2*p.pause, p.placeTTL/6)
	return nil
}

// takeNotes handles what noteGrant, noteFreeAt and noteRefresh have kept.
func (p *place) takeNotes(ctx context.Context) (*driver.Grant, error) {
	p.s.claims.mu.Lock()
	push, refresh, freeAt := p.push, p.refreshNow, p.freeAt
	p.refreshNow, p.freeAt = false, time.Time{}
	p.s.claims.mu.Unlock()
	if push.Token > p.seenToken {
		since := p.confirmedSince
		if !p.queued {
			since = p.began
		}
		deadline := driver.Deadline(since, p.placeTTL)
		if p.misrouted || p.s.confirm {
			deadline = time.Time{}
		}
		return p.claim(ctx, push.Token, deadline, push.Waiting > 0)
	}
	if !freeAt.IsZero() {
		p.announcedEnd, p.holderEnds = freeAt, freeAt
		p.askAt(freeAt)
	}
	if refresh {
		// A request that creates the place is alone: the refresh follows it.
		p.next, p.refreshOnceKnown = time.Now(), !p.known
	}
	return nil, nil
}

// claim returns the granted lease. If too little time is left of it, or a push has said that it was
// taken away, claim renews it first, and takes the token from the renewal's reply.
func (p *place) claim(ctx context.Context, token int64, deadline time.Time, contended bool) (*driver.Grant, error) {
	for range 3 {
		if driver.Remaining(deadline, time.Now()) >= p.placeTTL/3 && !p.ousted.Swap(false) {
			if p.s.claims.becomeLease(p, token, deadline) {
				contended = true
			}
			p.grant = driver.Grant{ID: p.id, Token: token, Deadline: deadline, Contended: contended}
			return &p.grant, nil
		}
		if p.inBegin {
			p.next = time.Now()
			return nil, nil
		}
		r, sent, err := p.s.renew(ctx, driver.Renewal{ID: p.id, Token: token, TTL: p.r.TTL})
		switch {
		case errors.Is(err, driver.ErrNotHeld):
			return nil, driver.ErrPlaceLost
		case err != nil:
			return nil, err
		}
		token, deadline, contended = r.Token, driver.Deadline(sent, p.r.TTL), r.Waiting > 0
	}
	return nil, fmt.Errorf("redis: answers take too long for a lease of %v", p.r.TTL)
}

// pushed handles one push.
func (s *session) pushed(payload string) {
	p, err := protocol.ParsePush(payload)
	if err != nil {
		return // not of this protocol
	}
	c := &s.claims
	c.mu.Lock()
	cl := c.byOwner[p.Owner]
	if cl == nil || cl.over || s.name(cl.key) != p.Key {
		c.mu.Unlock()
		if p.Kind == protocol.PushGrant && strings.HasPrefix(p.Key, KeyPrefix) {
			// If its end is not owed, a request came late, and a copy of it may come later still.
			s.cleaner.owe(p.Key, protocol.EndArgs{Owner: p.Owner, Bury: !s.cleaner.owes(p.Owner)}, protocol.MaxPlaceTTL, 0)
		}
		return
	}
	id, held := driver.ID{Key: cl.key, Owner: p.Owner}, cl.place == nil
	switch p.Kind {
	case protocol.PushGrant:
		if cl.place != nil {
			cl.place.noteGrant(p)
		}
	case protocol.PushEnds:
		if cl.place != nil {
			cl.place.noteFreeAt(p)
		}
	case protocol.PushWait:
		cl.contended = true // and so the key is a hash
		s.busy.note(p.Key, time.Now())
	case protocol.PushLost:
		if held {
			cl.end()
		} else {
			cl.place.ousted.Store(true) // the reply that grants it may be on its way
		}
	}
	c.mu.Unlock()

	switch {
	case p.Kind == protocol.PushGrant:
		s.listener.noteAnnounced()
	case p.Kind == protocol.PushWait && held:
		s.sink.Contended(id, true)
	case p.Kind == protocol.PushLost && held:
		s.sink.Lost(id, errTaken)
	}
}

// errTaken is why a lease ended that somebody took away at the server.
var errTaken = errors.New("redis: the lease was taken from its owner at the server")

// catchUp runs when the subscription is up, again or for the first time.
func (s *session) catchUp(again bool) {
	if again {
		s.renewals.replaceAll() // repeated renewals take other connections: see ask
	}
	s.verifyLeases()
	s.refreshPlaces()
}

// verifyLeases renews every lease when the subscription is up. The replies show who began to
// wait before it was up. They also show which leases a server has lost that was restarted or
// replaced, so that holders learn of it before their next renewals.
func (s *session) verifyLeases() {
	var calls []*call
	for _, l := range s.claims.leases(time.Now()) {
		calls = append(calls, &call{
			command: renewCommand(s.name(l.id.Key), driver.Renewal{ID: l.id, Token: l.token, TTL: minTTL}), // a renewal never shortens a lease
			done:    func(c *call) { s.verified(l, c) },
		})
	}
	if len(calls) > 0 {
		s.renewals.send(calls...)
	}
}

// verified handles the reply about one lease.
func (s *session) verified(l lease, c *call) {
	overwritten := isOverwritten(c.reply.err)
	if c.reply.err != nil && !overwritten || c.reply.misrouted {
		return // the next renewal asks again
	}
	r, err := protocol.ParseRenew(c.reply.value)
	switch {
	case overwritten && s.claims.lose(l):
		s.sink.Lost(l.id, errForgotten)
		return
	case err != nil:
		return
	case r.Status == protocol.Renewed:
		if r.Waiting > 0 {
			s.sink.Contended(l.id, true)
		}
		return
	case !s.claims.lose(l):
		return
	}
	// A late copy of the owner's acquisition must not bring it back.
	if l.copies {
		s.cleaner.owe(s.name(l.id.Key), protocol.EndArgs{Owner: l.id.Owner, Bury: true}, max(time.Until(l.deadline), 0), 0)
	}
	s.sink.Lost(l.id, errForgotten)
}

// errForgotten is why a lease ended that the server has lost.
var errForgotten = errors.New("redis: the server does not have the lease any more")

// refreshPlaces makes every waiter ask the server at once: pushes were lost while the
// subscription was down.
func (s *session) refreshPlaces() {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for _, cl := range s.claims.byOwner {
		if cl.place != nil {
			cl.place.noteRefresh()
		}
	}
}
