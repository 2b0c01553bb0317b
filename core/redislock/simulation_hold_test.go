package redislock_test

import (
	"context"
	"errors"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/simulation"
)

// claimed records a claim for each of its keys.
func (c *caller) claimed(claim simulation.Claim, lease *core.Lease) {
	for _, key := range lease.Keys() {
		claim.Key, claim.Token = key, lease.TokenOf(key)
		c.p.s.Claimed(claim)
	}
}

// hold keeps a lease for a while and releases it.
func (c *caller) hold(lease *core.Lease, p core.Policy, a simulation.Attempt) {
	s := c.p.s
	if over := a.Return.Sub(lease.Deadline()); over >= 0 {
		s.Violation("process %d is granted %s %v after the lease's deadline", c.p.id, p.Key, over)
	}
	ended := make(chan time.Time, 1)
	s.closing.Go(func() {
		<-lease.Done()
		ended <- time.Now()
	})
	during := c.upTo(15 * time.Millisecond)
	switch c.rand.IntN(20) {
	case 0:
		during = c.upTo(min(2*p.TTL, 3*time.Second))
	case 1, 2:
		during = 1
	}
	if c.rand.IntN(6) == 0 {
		c.nest(lease, p)
	}
	if c.rand.IntN(6) == 0 {
		if err := lease.Check(c.p.ctx); err == nil {
			s.Count("checked")
		}
	}
	if c.rand.IntN(8) == 0 {
		if err := lease.Extend(c.p.ctx, p.TTL); err == nil {
			s.Count("extended")
		}
	}
	claim := simulation.Claim{Process: c.p.id, Room: room(p), Start: a.Return}
	if p.Mode == core.Exclusive && c.rand.IntN(8) == 0 && lease.Err() == nil {
		claim = c.downgrade(lease, claim)
	}
	timer := time.NewTimer(during)
	defer timer.Stop()
	select {
	case <-timer.C:
		select {
		case <-lease.Done():
		default:
			c.stillHeld(lease, p, a)
		}
	case <-lease.Done():
		c.lost(lease, p, a)
	case <-c.p.ctx.Done():
	}
	now, deadline := time.Now(), lease.Deadline()
	claim.End = now
	if deadline.Before(now) {
		claim.End = deadline
	}
	err := lease.Release(context.Background())
	claim.Gone = time.Now()
	if p.Release == core.Sent && err == nil {
		claim.Gone = now.Add(s.timeout) // nobody says when it has arrived
	}
	if at := <-ended; at.Before(claim.End) {
		claim.End = at
	}
	if c.p.ctx.Err() != nil {
		claim.Gone = now
		if c.p.closed.Before(claim.End) {
			claim.End = c.p.closed
		}
	} else if took := claim.Gone.Sub(now); took > s.timeout+returnGrace {
		s.Violation("process %d took %v to release", c.p.id, took)
	}
	s.Note("process %d: %s is released after %v, token %d: %v", c.p.id, lease.Keys(), now.Sub(a.Return), a.Token, err)
	c.claimed(claim, lease)
	switch {
	case err == nil:
	case errors.Is(err, core.ErrLost), errors.Is(err, core.ErrMaxHold), errors.Is(err, core.ErrClosed):
	case errors.Is(err, core.ErrUnavailable) && s.weather != calm:
	default:
		s.Violation("process %d: the release fails: %v", c.p.id, err)
	}
}

// downgrade lowers a writer's hold to a reader's, and returns what is claimed from
// then on.
func (c *caller) downgrade(lease *core.Lease, claim simulation.Claim) simulation.Claim {
	s := c.p.s
	start := time.Now()
	claim.End, claim.Gone = start, start
	if d := lease.Deadline(); d.Before(claim.End) {
		claim.End = d
	}
	c.claimed(claim, lease)
	err := lease.Downgrade(c.p.ctx)
	s.Note("process %d: %s is downgraded, token %d: %v", c.p.id, lease.Keys(), lease.Token(), err)
	if took := time.Since(start); took > s.timeout+returnGrace {
		s.Violation("process %d took %v to downgrade", c.p.id, took)
	}
	switch {
	case err == nil:
		s.Count("downgraded")
	case errors.Is(err, core.ErrLost), errors.Is(err, core.ErrMaxHold), errors.Is(err, core.ErrClosed):
	case (errors.Is(err, core.ErrUnavailable) || errors.Is(err, context.Canceled)) && s.weather != calm:
	default:
		s.Violation("process %d: the downgrade fails: %v", c.p.id, err)
	}
	claim.Start, claim.Room = start, 0
	return claim
}

// stillHeld checks that a hold that was not ended need not have been.
func (c *caller) stillHeld(lease *core.Lease, p core.Policy, a simulation.Attempt) {
	now := time.Now()
	if late := now.Sub(lease.Deadline()); late > returnGrace {
		c.p.s.Violation("process %d still holds %s %v after its deadline", c.p.id, p.Key, late)
	}
	if late := now.Sub(a.Return) - p.MaxHold; p.MaxHold > 0 && late > returnGrace {
		c.p.s.Violation("process %d still holds %s %v after its MaxHold", c.p.id, p.Key, late)
	}
}

// lost checks that a hold that was ended had to be.
func (c *caller) lost(lease *core.Lease, p core.Policy, a simulation.Attempt) {
	s, err := c.p.s, lease.Err()
	switch {
	case errors.Is(err, core.ErrMaxHold):
		s.Count("MaxHold")
		// Who is handed a lease by another caller, while a request of his own is under way
		// that cannot be interrupted, holds before he knows.
		if p.MaxHold == 0 || time.Since(a.Return) < p.MaxHold-driver.Promptness && len(p.Keys) == 0 {
			s.Violation("process %d: %v after %v with %+v", c.p.id, err, time.Since(a.Return), p)
		}
	case errors.Is(err, core.ErrClosed):
		if !c.p.isOver() {
			s.Violation("process %d: %v", c.p.id, err)
		}
	case errors.Is(err, core.ErrLost):
		s.Count("lost")
		if s.weather == calm && !p.NoRenew {
			s.Violation("process %d lost %s in calm weather", c.p.id, p.Key)
		}
	default:
		s.Violation("process %d: the hold on %s ends with %v", c.p.id, p.Key, err)
	}
}

// nest takes the same lock again in the name of its holder.
func (c *caller) nest(lease *core.Lease, p core.Policy) {
	s := c.p.s
	p.Reentrant = c.rand.IntN(2) == 0
	start := time.Now()
	inner, err := c.p.engine.Acquire(lease.Context(c.p.ctx), p)
	if took := time.Since(start); took > 0 {
		s.Violation("process %d: a nested use took %v", c.p.id, took)
	}
	held := lease.Err() == nil && c.p.ctx.Err() == nil && !c.p.isOver()
	switch {
	case !p.Reentrant:
		s.Count("deadlock")
		if held && !errors.Is(err, core.ErrDeadlock) || err == nil {
			s.Violation("process %d: taking a held key again gives %v", c.p.id, err)
		}
	case err == nil:
		s.Count("nested")
		if inner.Token() != lease.Token() {
			s.Violation("process %d: a nested use has token %d, not %d", c.p.id, inner.Token(), lease.Token())
		}
		if err := inner.Release(c.p.ctx); err != nil && lease.Err() == nil {
			s.Violation("process %d: the release of a nested use fails: %v", c.p.id, err)
		}
	case held:
		s.Violation("process %d: a nested use is refused: %v", c.p.id, err)
	}
}
