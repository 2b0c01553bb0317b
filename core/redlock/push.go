package redlock

import (
	"errors"
	"math/bits"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// startListening starts the subscriptions, one at each node. The first Acquire calls it,
// whether it waits or not: the engine hands the lease on within this process until a push
// says that another process waits.
func (s *session) startListening() {
	s.listenOnce.Do(func() {
		for i := range s.nodes {
			s.Start(func() { s.listen(i) })
		}
	})
}

// listen keeps the subscription at one node.
func (s *session) listen(node int) {
	const first, most = 20 * time.Millisecond, time.Second
	pause := first
	for s.Ctx.Err() == nil {
		began := time.Now()
		_ = s.nodes[node].listen(s.Ctx, s.channel, func() {
			pause = first
			s.askNow(node) // pushes may have been missed
		}, func(payload string) { s.onPush(node, payload) })
		if time.Since(began) > most {
			pause = first
		}
		kit.Sleep(s.Ctx, time.Duration((0.5+s.jitter())*float64(pause)))
		pause = min(2*pause, most)
	}
}

// askNow makes every waiting acquisition ask a node at once.
func (s *session) askNow(node int) {
	s.claims.mu.Lock()
	defer s.claims.mu.Unlock()
	for _, cl := range s.claims.all {
		if cl.acquiring != nil {
			cl.acquiring.askNow(node)
		}
	}
}

// errOusted is the cause of the loss of a lease that was ended by Oust.
var errOusted = errors.New("redlock: the lease was taken from its owner at the nodes")

// onPush takes one push of a node.
func (s *session) onPush(node int, payload string) {
	m, ok := parsePush(payload)
	if !ok {
		return
	}
	c := &s.claims
	c.mu.Lock()
	cl := c.all[m.owner]
	if cl == nil {
		c.mu.Unlock()
		return
	}
	id, a, late, deadline := cl.id, cl.acquiring, cl.late, cl.deadline
	held := a == nil && cl.endAsked.IsZero()
	lost := false
	switch m.kind {
	case pushContended:
		cl.contended = true
	case pushLost:
		cl.lost |= 1 << node
		lost = held && s.ousted(cl.lost)
		if lost {
			delete(c.all, m.owner)
		}
	}
	c.mu.Unlock()
	switch {
	case a != nil && m.kind == pushFree:
		a.askNow(node)
	case held && m.kind == pushContended:
		s.sink.Contended(id, true)
	case lost:
		for i, c := range s.cleaners {
			if contains(late, i) {
				c.owe(id, 0, leaseRemains(deadline), true)
			}
		}
		s.sink.Lost(id, errOusted)
	}
}

// ousted reports whether so many nodes have ousted a lease that no majority is left.
func (s *session) ousted(lost uint64) bool { return len(s.nodes)-bits.OnesCount64(lost) < s.quorum }

// push is a Pub/Sub message from a node to a session about one of its owners: a letter and
// the owner.
type push struct {
	kind  byte
	owner driver.Owner
}

const (
	pushFree      byte = 'f' // the owner waits, and the node's vote is free
	pushContended byte = 'w' // somebody else wants the key that the owner has
	pushLost      byte = 'l' // the owner's lease was ousted
)

// parsePush reads a payload; false: it is not of this protocol.
func parsePush(payload string) (push, bool) {
	var p push
	if len(payload) != 1+len(p.owner) {
		return p, false
	}
	p.kind = payload[0]
	copy(p.owner[:], payload[1:])
	return p, p.kind == pushFree || p.kind == pushContended || p.kind == pushLost
}
