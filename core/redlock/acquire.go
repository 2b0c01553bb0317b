package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

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
		s.health.noteTTL(r.TTL)
		a.again = s.claims.add(r.ID, a)
		g, err = a.run(ctx)
		err = a.tries.Ended(err)
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

// maxSplits is how often an acquisition that does not wait tries again after a split
// vote, when the key may be free: the votes that it lacks have no token yet or different
// ones, or belong to fewer nodes than a majority, as just after a release.
const maxSplits = 6

// run asks all nodes for their votes, and repeats this until the lease is granted or refused.
func (a *acquisition) run(ctx context.Context) (driver.Grant, error) {
	for {
		if at := a.s.clock(); at != 0 && !a.again {
			a.bid = a.newToken(at)
		}
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
			a.tries.Failed(a.unreachable())
		case a.r.Wait:
			return a.wait(ctx)
		case a.refusals() > n-a.s.quorum || a.splits >= maxSplits:
			return driver.Grant{}, &driver.HeldError{RetryAfter: a.retryAfter(), Holder: a.taker().origin()}
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

// refusals is the number of nodes that refuse together: those where a queue or a kept key is
// in the way, and those that voted for one owner, with one token.
func (a *acquisition) refusals() int {
	most := 0
	for i := range a.nodes {
		last := &a.nodes[i].last
		most = max(most, a.count(func(n *nodeState) bool {
			return n.isFirm() && (n.taker().channel == "" || n.taker().channel == last.taker.channel && n.last.token == last.token)
		}))
	}
	return most
}

// refusedForGood reports whether too many nodes refuse permanently for a majority.
func (a *acquisition) refusedForGood() bool {
	return isPermanent(a.unreachable())
}

// pause waits for a random time, longer after each split vote, so that the rivals do not
// split the votes again.
func (a *acquisition) pause(ctx context.Context) error {
	most := 20 * time.Millisecond << min(a.splits, 3)
	timer := time.NewTimer(2*time.Millisecond + time.Duration(a.s.jitter()*float64(most)))
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

// retryAfter is the time until a majority of votes is free, if none is renewed.
func (a *acquisition) retryAfter() time.Duration {
	var left []time.Duration
	for i := range a.nodes {
		if n := &a.nodes[i]; n.answered && !n.voted {
			left = append(left, n.last.left)
		}
	}
	slices.Sort(left)
	need := a.s.quorum - a.count((*nodeState).hasVoted)
	if need < 1 || need > len(left) {
		return 0
	}
	return left[need-1]
}

// finish cleans up before Acquire returns g and err.
func (a *acquisition) finish(g *driver.Grant, err error) {
	a.detach(g, err)
	old, late, ownLate := a.r.Replace, uint64(0), uint64(0)
	if old != nil {
		late = a.s.claims.remove(old.Owner)
	}
	if err != nil {
		ownLate = a.s.claims.remove(a.r.Owner)
	}
	for i := range a.nodes {
		n, c := &a.nodes[i], a.s.cleaners[i]
		if old != nil && (!n.oldEnded || contains(late, i)) {
			c.owe(old.ID, 0, max(time.Until(old.Deadline), a.r.TTL), contains(late, i))
		}
		switch {
		case err != nil && (n.mayKnow || contains(ownLate, i)):
			c.owe(a.r.ID, 0, a.r.TTL, n.mayRunLate || contains(ownLate, i))
			continue
		case err == nil && !n.accepted && !n.asking && (n.voted || n.queued):
			a.sendLease(i)
		}
		if n.mayRunLate {
			a.markLate(i)
		}
	}
}

// detach hands over to takeLate: the replies that come from now on, and those that nobody
// has read.
func (a *acquisition) detach(g *driver.Grant, err error) {
	a.mu.Lock()
	a.returned = true
	if err == nil {
		a.token = g.Token
	}
	answered := a.pending == 0
	if err != nil || answered {
		a.cancel() // requests that are not sent yet are dropped
	}
	a.mu.Unlock()
	if answered {
		a.s.claims.noteVoted(a.r.Owner, a)
	}
	for len(a.events) > 0 {
		e := <-a.events
		a.takeLate(&e, false)
	}
}
