package redislock

import (
	"errors"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

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
