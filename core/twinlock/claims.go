package twinlock

import (
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// claim is what the session knows of one owner, from its first request until both
// stores have confirmed its end. It is guarded by the session's mutex.
type claim struct {
	id      driver.ID
	parts   [sides]part
	granted bool          // by both
	lost    chan struct{} // closed when a store takes back what it has granted, before both have
	gone    bool          // lost is closed
}

// part is a lease at one of the stores.
type part struct {
	held      bool // granted, and its end was not confirmed
	lost      bool // the store has taken it back
	ref       string
	token     int64
	deadline  time.Time
	contended bool
}

func (c *claim) contended() bool { return c.parts[from].contended || c.parts[to].contended }

// deadline is when the first of the two leases is over.
func (c *claim) deadline() time.Time { return earlier(c.parts[from].deadline, c.parts[to].deadline) }

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// open begins the acquisition of an owner, or one that is repeated.
func (s *session) open(id driver.ID) *claim {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[id.Owner]
	if c == nil {
		c = &claim{id: id}
		s.claims[id.Owner] = c
	}
	c.lost, c.gone = make(chan struct{}), false
	return c
}

// hold notes that a store has granted its part.
func (s *session) hold(c *claim, side int, g driver.Grant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &c.parts[side]
	p.held, p.lost, p.ref, p.token = true, false, g.Ref, g.Token
	p.deadline = driver.Later(p.deadline, g.Deadline)
	p.contended = p.contended || g.Contended
}

// part returns what a store has of an owner.
func (s *session) part(o driver.Owner, side int) (p part, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[o]
	if c == nil {
		return part{}, false
	}
	return c.parts[side], true
}

// ended notes that a store has confirmed the end of its part.
func (s *session) ended(o driver.Owner, side int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.claims[o]
	if c == nil {
		return
	}
	if c.parts[side].held = false; !c.parts[from].held && !c.parts[to].held {
		delete(s.claims, o)
	}
}

// ear takes in what one of the stores pushes.
type ear struct {
	s    *session
	side int
}

var (
	_ driver.Follower = ear{}
	_ driver.Hearer   = ear{}
)

// Failed passes on what a try at a store has come to.
func (e ear) Failed(id driver.ID, err error) { driver.Failed(e.s.sink, id, err) }

// TakenBy passes on who holds the key at a store that the owner waits at.
func (e ear) TakenBy(id driver.ID, holder driver.Origin) { driver.TakenBy(e.s.sink, id, holder) }

// Waiting passes on that the owner has its place in the queue of a store: the key is
// taken, whichever it is.
func (e ear) Waiting(id driver.ID) { e.s.sink.Waiting(id) }

// Contended passes on that somebody waits at either store, and that nobody does at both.
func (e ear) Contended(id driver.ID, waiting bool) {
	s := e.s
	s.mu.Lock()
	c := s.claims[id.Owner]
	if c != nil {
		c.parts[e.side].contended = waiting
		waiting = c.contended()
	}
	s.mu.Unlock()
	if c != nil {
		s.sink.Contended(id, waiting)
	}
}

// Lost passes on that a lease is over at one of the stores, and so is over.
func (e ear) Lost(id driver.ID, cause error) {
	s := e.s
	s.mu.Lock()
	c := s.claims[id.Owner]
	granted := c != nil && c.granted
	if c != nil {
		c.parts[e.side].held, c.parts[e.side].lost = false, true
		if !c.gone && !granted {
			c.gone = true
			close(c.lost)
		}
	}
	s.mu.Unlock()
	if granted {
		s.sink.Lost(id, cause)
	}
}
