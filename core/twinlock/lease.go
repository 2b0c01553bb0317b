package twinlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Renew extends leases at both stores.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	if err := s.enter(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer s.running.Done()
	var renewed [sides][]driver.Renewed
	s.both(func(side int, store driver.Session) {
		parts := make([]driver.Renewal, len(rs))
		for i, r := range rs {
			parts[i] = r
			if p, known := s.part(r.Owner, side); known {
				parts[i].Ref, parts[i].Token = p.ref, p.token
			}
		}
		renewed[side] = store.Renew(ctx, parts)
		for i, r := range renewed[side] {
			if r.Err == nil {
				s.extend(rs[i].Owner, side, r)
			}
		}
	})
	for i := range rs {
		a, b := renewed[from][i], renewed[to][i]
		if out[i].Err = worse(a.Err, b.Err); out[i].Err == nil {
			out[i] = driver.Renewed{Deadline: earlier(a.Deadline, b.Deadline), Contended: a.Contended || b.Contended}
		}
	}
	return out
}

// worse is ErrNotHeld if one of the errors is, and else the first that there is.
func worse(a, b error) error {
	if a == nil || errors.Is(b, driver.ErrNotHeld) {
		return b
	}
	return a
}

// extend notes a renewal at one of the stores.
func (s *session) extend(o driver.Owner, side int, r driver.Renewed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.claims[o]; c != nil {
		p := &c.parts[side]
		p.deadline, p.contended = driver.Later(p.deadline, r.Deadline), r.Contended
	}
}

// ending is an ending's part at one of the stores. It is over, with that error, if the
// store has it no more.
func (s *session) ending(e driver.Ending, side int) (part driver.Ending, over bool, err error) {
	p, known := s.part(e.Owner, side)
	if known {
		e.Ref, e.Token, e.Deadline = p.ref, p.token, p.deadline
	}
	if p.lost {
		err = driver.ErrNotHeld
	}
	return e, known && !p.held, err
}

// Release ends leases at both stores. A part whose end was confirmed is not ended again.
func (s *session) Release(ctx context.Context, rs []driver.Ending) []error {
	out := make([]error, len(rs))
	if err := s.enter(); err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer s.running.Done()
	var ended [sides][]error
	s.both(func(side int, store driver.Session) {
		ended[side] = make([]error, len(rs))
		var parts []driver.Ending
		var at []int
		for i, e := range rs {
			part, over, err := s.ending(e, side)
			if over {
				ended[side][i] = err
				continue
			}
			parts, at = append(parts, part), append(at, i)
		}
		if len(parts) == 0 {
			return
		}
		for j, err := range store.Release(ctx, parts) {
			ended[side][at[j]] = err
		}
	})
	for i, e := range rs {
		a, b := ended[from][i], ended[to][i]
		for side, err := range [sides]error{a, b} {
			if err == nil || errors.Is(err, driver.ErrNotHeld) {
				s.ended(e.Owner, side)
			}
		}
		// A store that could not be asked is to be asked again, whatever the other said.
		if out[i] = a; a == nil || errors.Is(a, driver.ErrNotHeld) && b != nil {
			out[i] = b
		}
	}
	return out
}

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

const (
	firstPause = 20 * time.Millisecond // before an ending is repeated
	maxPause   = time.Second
)

// owe ends one store's part of a lease that was given up: detached from whoever gave it
// up, and repeated until the store answers or the lease has ended by itself.
func (s *session) owe(side int, e driver.Ending) {
	s.debts.Add(1)
	s.workers.Go(func() {
		defer s.debts.Done()
		until := e.Deadline.Add(2*s.timeout + driver.Margin(time.Second))
		for pause := firstPause; ; pause = min(2*pause, maxPause) {
			ctx, cancel := context.WithTimeout(s.ctx, s.timeout)
			err := s.stores[side].Release(ctx, []driver.Ending{e})[0]
			cancel()
			var refused *driver.PermanentError
			switch {
			case err == nil, errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrClosed), errors.As(err, &refused):
				return
			case time.Now().After(until):
				return
			}
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-s.ctx.Done():
				timer.Stop()
				return
			}
		}
	})
}
