package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// maxSplits is how often an acquisition that does not wait tries again after a split
// vote, when the key may be free: the votes that it lacks have no token yet, or belong to
// fewer nodes than a majority, as just after a release.
const maxSplits = 6

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	a := s.newAcquisition(r)
	if r.Replace != nil {
		s.claims.noteEnd(r.Replace, a.began)
	}
	err := checkRequest(&r)
	if err == nil {
		err = ctx.Err()
	}
	// A node that does not know of the owner's end yet might grant the lease once more.
	if err == nil && slices.ContainsFunc(s.cleaners, func(c *cleaner) bool { return c.owes(r.Owner) }) {
		err = driver.ErrPlaceLost
	}
	var g driver.Grant
	if err == nil {
		s.startListening()
		s.d.health.noteTTL(r.TTL)
		s.claims.add(a)
		g, err = a.run(ctx)
	}
	a.finish(&g, err)
	return g, err
}

// checkRequest refuses what an engine refuses when it compiles a policy.
func checkRequest(r *driver.Request) error {
	switch {
	case r.Mode != driver.Exclusive:
		return &driver.PermanentError{Err: errors.New("redlock: mode " + r.Mode.String() + " is not offered; use exclusive, or another driver")}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: errors.New("redlock: a TTL of " + r.TTL.String() + " is too short; use at least " + minTTL.String())}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("redlock: the lease to replace is of another key")}
	}
	return nil
}

// run asks all nodes for their votes, and repeats this until the lease is granted or refused.
func (a *acquisition) run(ctx context.Context) (driver.Grant, error) {
	for {
		for i := range a.nodes {
			a.nodes[i].answered = false
			if !a.nodes[i].asking {
				a.askVote(i)
			}
		}
		for !a.decided() {
			e, err := a.await(ctx)
			if err != nil {
				return driver.Grant{}, err
			}
			a.noteReply(&e)
			if e.op == opYield {
				a.askVote(e.node)
			}
		}
		n := len(a.nodes)
		switch {
		case a.count((*nodeState).hasVoted) >= a.s.quorum:
			g, err := a.confirm(ctx)
			if err != errVotesLost || a.splits >= maxSplits {
				return g, err
			}
		case a.count((*nodeState).isOver) > 0:
			return driver.Grant{}, driver.ErrPlaceLost
		case a.count((*nodeState).hasAnswered) < a.s.quorum:
			if time.Since(a.began) >= a.s.timeout || a.refusedForGood() {
				return driver.Grant{}, a.unreachable()
			}
		case a.r.Wait:
			return a.wait(ctx)
		case a.count((*nodeState).isFirm) > n-a.s.quorum || a.splits >= maxSplits:
			return driver.Grant{}, &driver.HeldError{RetryAfter: a.retryAfter()}
		}
		a.yieldVotes(time.Time{})
		if err := a.pause(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
}

// decided reports whether the outstanding votes cannot change the next step.
func (a *acquisition) decided() bool {
	asked, votes := a.count((*nodeState).isAsked), a.count((*nodeState).hasVoted)
	return asked == 0 || votes >= a.s.quorum || votes+asked < a.s.quorum && a.count((*nodeState).hasAnswered) >= a.s.quorum
}

// refusedForGood reports whether too many nodes refuse permanently for a majority.
func (a *acquisition) refusedForGood() bool {
	return isPermanent(a.unreachable())
}

// pause waits for a random time, longer after each split vote, so that the rivals do not
// split the votes again.
func (a *acquisition) pause(ctx context.Context) error {
	most := 20 * time.Millisecond << min(a.splits, 3)
	timer := time.NewTimer(2*time.Millisecond + time.Duration(a.s.d.jitter()*float64(most)))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case e := <-a.events: // of a slow node
			a.noteReply(&e)
		case <-ctx.Done():
			return ctx.Err()
		case <-a.s.Closing:
			return driver.ErrClosed
		}
	}
}
