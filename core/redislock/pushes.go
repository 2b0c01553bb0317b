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

// errTaken is why a lease ended that somebody took away at the server.
var errTaken = errors.New("redis: the lease was taken from its owner at the server")

// listener keeps the session's one subscription. It starts with the first Acquire, even one
// that would not wait: the engine hands its lease on among the callers of this process until
// a push says that another process waits.
type listener struct {
	s     *session
	start sync.Once

	mu          sync.Mutex
	up          bool
	err         error         // why the subscription is down, if it is
	change      chan struct{} // closed and replaced when up or err changes
	resubscribe context.CancelFunc
	reconnect   chan struct{} // closed and replaced when the subscription is up again
	missed      int           // grants in a row that a refresh found and that no push announced
}

func newListener(s *session) *listener {
	return &listener{s: s, change: make(chan struct{}), reconnect: make(chan struct{})}
}

// ensure starts the listener.
func (l *listener) ensure() {
	l.start.Do(func() { l.s.Start(l.run) })
}

func (l *listener) run() {
	pause := firstPause
	wasUp := false
	for {
		ctx, cancel := context.WithCancel(l.s.Ctx)
		l.mu.Lock()
		l.resubscribe, l.missed = cancel, 0
		l.mu.Unlock()
		worked := false
		err := l.s.wire.listen(ctx, l.s.channel, func() {
			worked = true
			if wasUp {
				l.resendRenewals()
			}
			wasUp = true
			l.s.verifyLeases()
			l.s.refreshPlaces()
			l.set(true, nil) // after that: who waits for it relies on verified leases
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

// resendRenewals makes senders repeat the renewals under way. The fault that broke the
// subscription may have broken their connections too, without an error.
func (l *listener) resendRenewals() {
	l.mu.Lock()
	close(l.reconnect)
	l.reconnect = make(chan struct{})
	l.mu.Unlock()
	l.s.renewals.replaceAll()
}

// reconnected returns a channel that is closed when the subscription is up again.
func (l *listener) reconnected() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reconnect
}

// noteAnnounced notes that a push has announced a grant.
func (l *listener) noteAnnounced() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missed = 0
}

// noteMissed notes a grant that no push announced. After the second in a row the listener
// subscribes anew: after a failover a subscription can stay with the old master for ever.
func (l *listener) noteMissed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.missed++; l.missed >= 2 && l.up {
		l.missed = 0
		l.resubscribe()
	}
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
	if cl == nil || protocol.Key(cl.key) != p.Key {
		c.mu.Unlock()
		if p.Kind == protocol.PushGrant && strings.HasPrefix(p.Key, KeyPrefix) {
			s.cleaner.owe(p.Key, p.Owner, 0, protocol.MaxPlaceTTL, 0)
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
		cl.contended = true
	case protocol.PushLost:
		if held {
			delete(c.byOwner, p.Owner)
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

// errForgotten is why a lease ended that the server has lost.
var errForgotten = errors.New("redis: the server does not have the lease any more")

// verifyLeases renews every lease when the subscription is up. The replies show who began to
// wait before it was up. They also show which leases a server has lost that was restarted or
// replaced, so that holders learn of it before their next renewals.
func (s *session) verifyLeases() {
	var calls []*call
	for _, l := range s.claims.leases(time.Now()) {
		calls = append(calls, &call{
			command: renewCommand(driver.Renewal{ID: l.id, TTL: minTTL}), // a renewal never shortens a lease
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
	s.cleaner.owe(protocol.Key(l.id.Key), l.id.Owner, 0, max(time.Until(l.deadline), 0), 0)
	s.sink.Lost(l.id, errForgotten)
}

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

// noteRefresh makes the place ask the server at once. s.claims.mu is held.
func (p *place) noteRefresh() {
	p.refreshNow = true
	p.wake.Set()
}
