package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// maxSplits is how often one who does not wait tries again when it may be that nobody
// holds the key: what is in its way are bare votes, of others who try as well, or votes
// of too few nodes, as just after a release.
const maxSplits = 6

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	p := s.newPlace(r)
	if r.Replace != nil {
		s.claims.release(r.Replace, p.began)
	}
	err := check(&r)
	if err == nil {
		err = ctx.Err()
	}
	// Nodes that have not heard of the end yet might grant the lease once more.
	if err == nil && slices.ContainsFunc(s.cleaners, func(c *cleaner) bool { return c.owes(r.Owner) }) {
		err = driver.ErrPlaceLost
	}
	var g driver.Grant
	if err == nil {
		s.hear()
		s.d.health.asked(r.TTL)
		s.claims.open(p)
		g, err = p.run(ctx)
	}
	p.leave(&g, err)
	return g, err
}

// run asks all nodes, and asks again, until the lease is granted or cannot be.
func (p *place) run(ctx context.Context) (driver.Grant, error) {
	for {
		for i := range p.sides {
			p.sides[i].answered = false
			if !p.sides[i].asking {
				p.vote(i)
			}
		}
		for !p.decided() {
			e, err := p.await(ctx)
			if err != nil {
				return driver.Grant{}, err
			}
			p.take(&e)
			if e.op == opYield {
				p.vote(e.node)
			}
		}
		n := len(p.sides)
		switch {
		case p.count((*side).hasVoted) >= p.s.quorum:
			g, err := p.confirm(ctx)
			if err != errVotesLost || p.splits >= maxSplits {
				return g, err
			}
		case p.count((*side).isOver) > 0:
			return driver.Grant{}, driver.ErrPlaceLost
		case p.count((*side).hasAnswered) < p.s.quorum:
			if time.Since(p.began) >= p.s.timeout || p.refusedForGood() {
				return driver.Grant{}, p.unreachable()
			}
		case p.r.Wait:
			return p.wait(ctx)
		case p.count((*side).isFirm) > n-p.s.quorum || p.splits >= maxSplits:
			return driver.Grant{}, &driver.HeldError{RetryAfter: p.retryAfter()}
		}
		p.yield(time.Time{})
		if err := p.pause(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
}

// decided reports whether the votes that are still asked for cannot change what is to
// be done.
func (p *place) decided() bool {
	asked, votes := p.count((*side).isAsked), p.count((*side).hasVoted)
	return asked == 0 || votes >= p.s.quorum || votes+asked < p.s.quorum && p.count((*side).hasAnswered) >= p.s.quorum
}

// refusedForGood reports whether so many nodes refuse that asking again is useless.
func (p *place) refusedForGood() bool {
	return isPermanent(p.unreachable())
}

// pause waits at random, longer each time, so that those who have split the votes
// among them do not do so again.
func (p *place) pause(ctx context.Context) error {
	most := 20 * time.Millisecond << min(p.splits, 3)
	timer := time.NewTimer(2*time.Millisecond + time.Duration(p.s.d.jitter()*float64(most)))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case e := <-p.events: // of a slow node
			p.take(&e)
		case <-ctx.Done():
			return ctx.Err()
		case <-p.s.Closing:
			return driver.ErrClosed
		}
	}
}
