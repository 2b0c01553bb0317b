package redislock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// errTaken is the cause of a lease that somebody took away at the store.
var errTaken = errors.New("redis: the lease was taken from its owner at the server")

// listener keeps the session's one subscription. It starts with the first
// Acquire, whether it may wait or not: callers of this process may come to wait
// for the lease, and it is handed on among them without a bound until a push
// says that another process waits too.
type listener struct {
	s     *session
	start sync.Once

	mu     sync.Mutex
	up     bool
	err    error         // why the subscription is down, if it is
	change chan struct{} // closed and replaced when up or err changes
	again  context.CancelFunc
	move   chan struct{} // closed and replaced when a subscription is up that was down
	missed int           // grants in a row that a refresh found and no push announced
}

func newListener(s *session) *listener {
	return &listener{s: s, change: make(chan struct{}), move: make(chan struct{})}
}

// ensure starts the listener.
func (l *listener) ensure() {
	l.start.Do(func() { l.s.Start(l.run) })
}

func (l *listener) run() {
	pause := firstPause
	again := false // it was up before
	for {
		ctx, cancel := context.WithCancel(l.s.Ctx)
		l.mu.Lock()
		l.again, l.missed = cancel, 0
		l.mu.Unlock()
		worked := false
		err := l.s.wire.listen(ctx, l.s.channel, func() {
			worked = true
			if again {
				l.moves()
			}
			again = true
			l.s.verifyLeases()
			l.s.refreshPlaces()
			l.set(true, nil) // who has waited for it has no lease that is still to be verified
		}, l.s.pushed)
		asked := ctx.Err() != nil
		cancel()
		if l.s.Ctx.Err() != nil {
			return
		}
		switch {
		case asked:
			err = nil
		case err == nil:
			err = errors.New("redis: the subscription has ended")
		}
		l.set(false, err)
		if worked {
			pause = firstPause
			if asked {
				continue
			}
		}
		if !kit.Sleep(l.s.Ctx, time.Duration((0.5+l.s.jitter())*float64(pause))) {
			return
		}
		pause = min(2*pause, maxPause)
	}
}

// moved returns a channel that is closed when the subscription is up the next time.
func (l *listener) moved() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.move
}

// moves has renewals that are under way sent once more: what broke the subscription may have
// taken their connections with it, in silence.
func (l *listener) moves() {
	l.mu.Lock()
	close(l.move)
	l.move = make(chan struct{})
	l.mu.Unlock()
	l.s.renewals.makeWay()
}

// set notes the state of the subscription.
func (l *listener) set(up bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.err = up, err
	close(l.change)
	l.change = make(chan struct{})
}

// wait blocks until the subscription works or has failed, or ctx ends.
func (l *listener) wait(ctx context.Context) error {
	for {
		l.mu.Lock()
		up, err, change := l.up, l.err, l.change
		l.mu.Unlock()
		if up || err != nil {
			return err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return ctx.Err()
		case <-l.s.Closing:
			return driver.ErrClosed
		}
	}
}

// heard notes that a push has announced a grant.
func (l *listener) heard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = 0
}

// miss notes a grant that should have been announced by a push and was not.
// The second in a row subscribes afresh: after a failover a subscription can
// stay with the old master for ever.
func (l *listener) miss() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed++; l.missed >= 2 && l.up {
		l.missed = 0
		l.again()
	}
}

// pushed takes one push.
func (s *session) pushed(payload string) {
	p, err := protocol.ParsePush(payload)
	if err != nil {
		return // not of this protocol
	}
	c := &s.claims
	c.mu.Lock()
	cl := c.byOwner[p.Owner]
	if cl == nil || protocol.Key(cl.key) != p.Key {
		c.mu.Unlock()
		if p.Kind == protocol.PushGrant && strings.HasPrefix(p.Key, KeyPrefix) {
			s.cleaner.owe(p.Key, p.Owner, 0, protocol.MaxEnrol, 0)
		}
		return
	}
	id, held := driver.ID{Key: cl.key, Owner: p.Owner}, cl.place == nil
	switch p.Kind {
	case protocol.PushGrant:
		if cl.place != nil {
			cl.place.announce(p)
		}
	case protocol.PushEnds:
		if cl.place != nil {
			cl.place.hurry(p)
		}
	case protocol.PushWait:
		cl.contended = true
	case protocol.PushLost:
		if held {
			delete(c.byOwner, p.Owner)
		}
	}
	c.mu.Unlock()

	switch {
	case p.Kind == protocol.PushGrant:
		s.listener.heard()
	case p.Kind == protocol.PushWait && held:
		s.sink.Contended(id, true)
	case p.Kind == protocol.PushLost && held:
		s.sink.Lost(id, errTaken)
	}
}

// errForgotten is the cause of a lease that the server has lost.
var errForgotten = errors.New("redis: the server does not have the lease any more")

// verifyLeases asks after every lease, once the subscription is up: for others who
// have begun to wait before it was. If it had broken, that is the first that one sees
// of a server that was restarted or replaced; if that has lost a lease, the holder is
// told before its next renewal would find out.
func (s *session) verifyLeases() {
	var calls []*call
	for _, l := range s.claims.leases(time.Now()) {
		calls = append(calls, &call{
			command: renewCommand(driver.Renewal{ID: l.id, TTL: minTTL}), // which never shortens
			done:    func(c *call) { s.verified(l, c) },
		})
	}
	if len(calls) > 0 {
		s.renewals.send(calls...)
	}
}

// verified takes what the server has said about a lease.
func (s *session) verified(l lease, c *call) {
	overwritten := isOverwritten(c.reply.err)
	if c.reply.err != nil && !overwritten || c.reply.astray {
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
	s.cleaner.owe(protocol.Key(l.id.Key), l.id.Owner, 0, max(time.Until(l.deadline), 0), 0)
	s.sink.Lost(l.id, errForgotten)
}

// refreshPlaces has every waiter ask again at once: what was pushed while the
// subscription was down is gone.
func (s *session) refreshPlaces() {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for _, cl := range s.claims.byOwner {
		if cl.place != nil {
			cl.place.again()
		}
	}
}
