package redlock

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"math/bits"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// claims holds the session's owners, those that wait and those that hold, for the pushes
// that concern them.
type claims struct {
	mu      sync.Mutex
	all     map[driver.Owner]*claim
	sweepAt int // len(all) at which to remove expired leases that nobody released
}

// asker is a running Acquire, as far as claims concern it.
type asker interface {
	askNow(node int)
	afterVote(node int, call func()) bool
}

// claim is the wait or the lease of one owner. Its fields are guarded by claims.mu.
type claim struct {
	id        driver.ID
	acquiring asker     // nil once the lease is granted
	granted   bool      // also while it is acquired once more
	voting    asker     // who was granted the lease, while some node has not answered
	deadline  time.Time // of the lease, the latest known
	contended bool      // a node has said that others want the key
	lost      uint64    // nodes that have ousted the lease, a bit each
	endAsked  time.Time // when its end was first asked for
	late      uint64    // nodes that may execute a request after the end, a bit each
}

// add notes an owner that asks for the lease, and reports whether it was known: then it may have
// been granted the lease before.
func (c *claims) add(id driver.ID, a asker) (known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[id.Owner]
	if known = cl != nil; !known {
		cl = &claim{id: id}
		c.all[id.Owner] = cl
	}
	cl.acquiring = a
	return known
}

// remove removes an owner, and returns the nodes that may execute its requests late.
func (c *claims) remove(o driver.Owner) (late uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil {
		late = cl.late
	}
	delete(c.all, o)
	return late
}

// markLate notes that a node may execute a request of a holder late. It reports whether the
// lease has still to end; then its end covers this request.
func (c *claims) markLate(o driver.Owner, node int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[o]
	if !cl.holds() {
		return false
	}
	cl.late |= 1 << node
	return true
}

// noteGrant notes the lease of an owner. It reports whether a node has said that others want the
// key, and the nodes that have ousted the lease already.
func (c *claims) noteGrant(id driver.ID, a asker, deadline time.Time) (contended bool, lost uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.sweepAt {
		now := time.Now()
		for o, cl := range c.all {
			if cl.acquiring == nil && now.After(cl.deadline) {
				delete(c.all, o)
			}
		}
		c.sweepAt = max(1024, 2*len(c.all))
	}
	cl := c.all[id.Owner]
	if cl == nil {
		cl = &claim{id: id}
		c.all[id.Owner] = cl
	}
	cl.acquiring, cl.granted, cl.voting, cl.deadline = nil, true, a, deadline
	return cl.contended, cl.lost
}

// noteVoted notes that all nodes have answered an acquisition.
func (c *claims) noteVoted(o driver.Owner, a asker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil && cl.voting == a {
		cl.voting = nil
	}
}

// afterVote calls send soon, on another goroutine, and if it can when the node has answered the
// vote of a lease that is to end there, so that it does not execute the vote after the end. It
// reports false if no vote is under way.
func (c *claims) afterVote(node int, o driver.Owner, send func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[o]
	return cl != nil && cl.voting != nil && cl.voting.afterVote(node, send)
}

// noteRenewal notes the deadline of a renewed lease.
func (c *claims) noteRenewal(o driver.Owner, deadline time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.all[o]; cl != nil {
		cl.deadline = driver.Later(cl.deadline, deadline)
	}
}

// holds reports whether an owner has a lease whose end was not asked for.
func (c *claims) holds(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[o].holds()
}

func (cl *claim) holds() bool { return cl != nil && cl.granted && cl.endAsked.IsZero() }

// noteEnd notes that the end of a lease is asked for. It returns when this was first the
// case, and the nodes that may execute the owner's requests late.
func (c *claims) noteEnd(e *driver.Ending, now time.Time) (endAsked time.Time, late uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl := c.all[e.Owner]
	if cl == nil {
		cl = &claim{id: e.ID, deadline: e.Deadline}
		c.all[e.Owner] = cl
	}
	if cl.endAsked.IsZero() {
		cl.endAsked = now
	}
	return cl.endAsked, cl.late
}

// contains reports whether nodes has the bit of node.
func contains(nodes uint64, node int) bool { return nodes>>node&1 == 1 }

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

// newChannel returns the name of a session's channel, which no other session has. It ends with
// the identity of the session, if that has one: every vote and every place has the channel,
// so that the nodes need no field more.
func newChannel(identity string) string {
	var b [9]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand aborts the program instead
	channel := KeyPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	if identity != "" {
		channel += ":" + identity
	}
	return channel
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
