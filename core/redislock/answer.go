package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// answer takes the reply to one of the place's requests. The place goes on if
// it returns neither a grant nor an error.
func (p *place) answer(ctx context.Context, c *call) (*driver.Grant, error) {
	rq := p.settle(c)
	if c.reply.err != nil {
		if errors.Is(c.reply.err, driver.ErrClosed) {
			return nil, driver.ErrClosed
		}
		p.sent = true
		return nil, p.failed(c.reply.err)
	}
	p.sent = true
	if rq.ends {
		return p.answerEnd(ctx, c)
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
			p.s.listener.miss()
		}
		return p.claim(ctx, r.Token, p.granted(c), r.Waiting > 0)
	case protocol.Queued:
		return nil, p.enqueued(c, r.Token, r.Head, r.Left)
	case protocol.Busy:
		if r.More {
			return nil, nil
		}
		p.clean = c.reply.once
		return nil, &driver.HeldError{RetryAfter: r.Left}
	default: // Over
		return nil, driver.ErrPlaceLost
	}
}

// answerEnd takes the reply to the request that ends the lease to replace.
func (p *place) answerEnd(ctx context.Context, c *call) (*driver.Grant, error) {
	r, err := protocol.ParseEnd(c.reply.value)
	if err != nil {
		return nil, classify(err)
	}
	p.known = true
	p.replaced = r.Status == protocol.Ended || !c.reply.astray
	switch r.Next {
	case protocol.Granted:
		return p.claim(ctx, r.Token, p.granted(c), r.Waiting > 0)
	case protocol.Queued:
		err := p.enqueued(c, r.Token, r.Head, r.Left)
		if r.More {
			p.next = time.Now()
		}
		return nil, err
	case protocol.Over:
		return nil, driver.ErrPlaceLost
	}
	// The lease had ended before: at the hands of an earlier copy of this
	// request, whose reply was lost, or by itself. The owner's own state tells.
	p.next = time.Now()
	return nil, nil
}

// granted returns the deadline of a lease that a reply grants. It is over already
// if another server may have granted the key to somebody else.
func (p *place) granted(c *call) time.Time {
	if c.reply.astray {
		return time.Time{}
	}
	return driver.Deadline(c.sent, p.r.TTL)
}

// settle removes the answered request.
func (p *place) settle(c *call) *request {
	for i, rq := range p.unanswered {
		if &rq.call == c {
			p.unanswered = append(p.unanswered[:i], p.unanswered[i+1:]...)
			return rq
		}
	}
	return &request{}
}

// enqueued notes that the place is confirmed.
func (p *place) enqueued(c *call, token int64, head bool, left time.Duration) error {
	if !p.r.Wait {
		return &driver.HeldError{RetryAfter: left}
	}
	first := !p.queued
	p.known, p.queued = true, true
	p.acked = driver.Later(p.acked, c.sent)
	p.astray = c.reply.astray
	p.floor = max(p.floor, token)
	p.pause = min(firstPause, p.enrol/12)
	// Asking when the lease ends wakes the queue after a crash, after a key was kept and
	// after a lost push. The server counts in milliseconds. The first of the queue asks
	// then, and the others a little later, since those before them may have crashed too.
	now := time.Now()
	ends := now.Add(left + time.Millisecond)
	if p.told.After(now) && p.told.Before(ends) { // later than this reply was written
		ends = p.told
	}
	p.holderEnds = ends
	if !head {
		ends = ends.Add(time.Duration((0.04 + 0.06*p.s.jitter()) * float64(p.enrol)))
	}
	p.askAt(ends)
	if p.recheck {
		p.next, p.recheck = time.Now(), false
	}
	if first {
		p.s.sink.Waiting(p.id)
	}
	return nil
}

// askAt has the place ask by then.
func (p *place) askAt(t time.Time) {
	if t.Before(p.next) {
		p.next = t
	}
}

// failed decides whether the place survives an attempt that failed: a confirmed
// place does for as long as the server remembers it, and a lease that is being
// replaced has a way to find out what became of it.
func (p *place) failed(err error) error {
	now := time.Now()
	permanent := new(driver.PermanentError)
	replacing := p.r.Replace != nil && now.Before(p.first.Add(p.enrol))
	if errors.As(err, &permanent) || !p.alive(now) && !replacing {
		return err
	}
	p.askAt(now.Add(time.Duration((0.5 + p.s.jitter()) * float64(p.pause))))
	p.pause = min(2*p.pause, p.enrol/6)
	return nil
}

// announce takes a push that grants the lease. s.claims.mu is held.
func (p *place) announce(push protocol.Push) {
	if push.Token > p.push.Token {
		p.push = push
	}
	p.wake.Set()
}

// hurry takes a push that says when the key is free. s.claims.mu is held.
func (p *place) hurry(push protocol.Push) {
	p.ends = time.Now().Add(push.Left + time.Millisecond)
	p.wake.Set()
}

// again has the place refreshed at once. s.claims.mu is held.
func (p *place) again() {
	p.asked = true
	p.wake.Set()
}

// woken takes what announce and again have left.
func (p *place) woken(ctx context.Context) (*driver.Grant, error) {
	p.s.claims.mu.Lock()
	push, asked, ends := p.push, p.asked, p.ends
	p.asked, p.ends = false, time.Time{}
	p.s.claims.mu.Unlock()
	if push.Token > p.floor {
		since := p.acked
		if !p.queued {
			since = p.first
		}
		deadline := driver.Deadline(since, p.enrol)
		if p.astray {
			deadline = time.Time{}
		}
		return p.claim(ctx, push.Token, deadline, push.Waiting > 0)
	}
	if !ends.IsZero() {
		p.told, p.holderEnds = ends, ends
		p.askAt(ends)
	}
	if asked {
		// Until the place is known there is no other request to send.
		p.next, p.recheck = time.Now(), !p.known
	}
	return nil, nil
}

// claim begins the lease. If too little of it is left to begin with, it is
// renewed first, and the token is that of the renewal's reply.
func (p *place) claim(ctx context.Context, token int64, deadline time.Time, contended bool) (*driver.Grant, error) {
	for range 3 {
		if driver.Remaining(deadline, time.Now()) >= p.enrol/3 {
			if p.s.claims.hold(p.id, token, deadline) {
				contended = true
			}
			p.grant = driver.Grant{ID: p.id, Token: token, Deadline: deadline, Contended: contended}
			return &p.grant, nil
		}
		if p.brief {
			p.next = time.Now()
			return nil, nil
		}
		r, sent, err := p.s.renew(ctx, driver.Renewal{ID: p.id, TTL: p.r.TTL})
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
