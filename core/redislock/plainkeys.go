package redislock

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// WithKeys keeps a lock where other libraries look for it: in the string of Redis that name returns for the lock's
// key. It is set by SET with NX and PX, and deleted by whoever knows its value, as redsync (with one pool),
// bsm/redislock and most code of one's own do. Processes that use this driver and processes that use such a
// library exclude each other, so that a service can go over one process after the other.
//
// Such a key has no queue, and nobody is told that it is free. So locks are exclusive; waiters ask again after 10
// ms at first and every 250 ms later, in no order; no lease lingers, is kept or ends by force. A policy that asks
// for that is refused when it is compiled. Fencing tokens rise among those who use this driver; the others have
// none. If the reply to a request is lost, nobody may have the key for a TTL, as with those libraries. Inspect
// counts no waiters, and knows no more of another library's lock than that it is held. Leave WithKeys out when the
// last process of the other library has ended: that is another key, so go there by package twinlock.
//
// name gets the key with the namespace and a slash in front. It returns the same name for the same key at all
// times, different ones for different keys, not "", and none that begins with "la2:"; otherwise the call fails, as
// it does if name panics. It is called by several goroutines at once. A user of an ACL needs the same rights on
// these names as on la2:*. A nil name is no option at all.
func WithKeys(name func(key string) string) Option {
	return optionFunc(func(c *config) { c.names = name })
}

// name returns the name of a lock's key in Redis, or "" if the function of WithKeys has none.
func (s *session) name(key string) (name string) {
	if s.names == nil {
		return protocol.Key(key)
	}
	defer func() {
		if recover() != nil || strings.HasPrefix(name, KeyPrefix) {
			name = ""
		}
	}()
	return s.names(key)
}

// sharesKeys reports whether keys are shared with other libraries: see [WithKeys].
func (s *session) sharesKeys() bool { return s.names != nil }

// The pauses between the requests of one who waits for a plain key.
const (
	minPoll = 10 * time.Millisecond
	maxPoll = 250 * time.Millisecond
)

// elsewhere handles the answer that somebody has the plain key.
func (p *place) elsewhere(ctx context.Context, c *call, drawn int64) (*driver.Grant, error) {
	if p.copies || p.token != 0 { // it may be the owner itself, by an earlier request
		if p.inBegin {
			p.next = time.Now()
			return nil, nil
		}
		if g, err := p.earlier(ctx, cmp.Or(p.token, drawn)); g != nil || err != nil {
			return g, err
		}
	}
	if !p.r.Wait {
		p.leftNothing = !p.copies
		return nil, &driver.HeldError{}
	}
	first := !p.queued
	p.queued, p.confirmedSince = true, driver.Later(p.confirmedSince, c.sent)
	if first {
		p.pause = minPoll
	}
	p.next = time.Now().Add(time.Duration((0.5 + p.s.jitter()) * float64(p.pause)))
	p.pause = min(p.pause*3/2, maxPoll)
	if first {
		p.s.sink.Waiting(p.id)
	}
	return nil, nil
}

// earlier returns the lease that an earlier copy of a request has made, or nil if there is none. The token is drawn
// later than the lease was made.
func (p *place) earlier(ctx context.Context, token int64) (*driver.Grant, error) {
	if token == 0 {
		c := p.s.askTwice(ctx, p.s.calls, []command{{key: p.key}}, func(any) bool { return false })[0]
		if token = c.reply.drawn.Token(); token == 0 {
			return nil, p.failed(c.reply.err)
		}
	}
	c := p.s.sendRenewals(ctx, driver.Renewal{ID: p.id, Token: token, TTL: p.r.TTL})[0]
	switch {
	case isOverwritten(c.reply.err):
		return nil, nil
	case c.reply.err != nil:
		return nil, p.failed(c.reply.err)
	}
	r, err := protocol.ParseRenew(c.reply.value)
	if err == nil && r.Status != protocol.Lost {
		err = c.reply.given()
	}
	if err != nil || r.Status == protocol.Lost {
		return nil, err
	}
	return p.claim(ctx, r.Token, driver.Deadline(c.sent, p.r.TTL), true)
}

// errName is for a key for which the function of WithKeys has no name.
var errName = &driver.PermanentError{Err: errors.New(`redis: the function of WithKeys has no name for the key, or one that begins with "la2:"`)}

// onlyPlain is a session of [WithKeys]: it lists no keys, whose names it does not know.
type onlyPlain struct {
	driver.PromptAll
	gossip
}

// gossip is the methods of [driver.Gossip] that a session has besides.
type gossip interface {
	Listen(topic string, l driver.Listener) (stop func())
	Tell(ctx context.Context, topic string, message []byte) error
}
