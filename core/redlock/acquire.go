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

// wait queues at the nodes and waits for a majority of votes.
//
// The order is that of Lamport's bakery (1974), by majorities: a ticket is larger than
// every one that a majority knows, and is known to a majority before the place counts.
// A later waiter therefore draws a larger one, and a node votes for the smallest ticket
// that it knows, so that nobody overtakes a place that a majority knows. Equal tickets, of
// waiters that came at the same time, are ordered by their owners.
func (a *acquisition) wait(ctx context.Context) (driver.Grant, error) {
	began := time.Now()
	for i := range a.nodes {
		n := &a.nodes[i]
		if n.answered {
			a.ticket = max(a.ticket, n.last.nextTicket())
		}
		n.askAt, n.ackedAt = began, began
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		switch votes := a.count((*nodeState).hasVoted); {
		case votes >= a.s.quorum:
			g, err := a.confirm(ctx)
			if err != errVotesLost {
				return g, err
			}
			a.retryLostVotes(now)
			continue
		case len(a.nodes)-a.count((*nodeState).isOver) < a.s.quorum:
			return driver.Grant{}, driver.ErrPlaceLost
		case now.After(a.lapsesAt()):
			return driver.Grant{}, a.unreachable()
		case votes == 0:
			a.splitSince = time.Time{}
		case a.splitSince.IsZero():
			a.splitSince, a.askedOthers = now, false
		case now.Sub(a.splitSince) >= a.splitTimeout():
			a.yieldVotes(a.retryAt(now))
		case !a.askedOthers && now.Sub(a.splitSince) >= a.splitTimeout()/2:
			// The other nodes may be free, and their push was lost.
			a.askedOthers = true
			for i := range a.nodes {
				if n := &a.nodes[i]; !n.voted {
					n.askAt = now
				}
			}
		}
		a.tellTaker()
		if !a.reportedWaiting && a.count((*nodeState).isQueued) >= a.s.quorum {
			a.reportedWaiting = true
			a.s.sink.Waiting(a.r.ID)
		}
		timer.Reset(a.askThoseDue(now).Sub(now))
		select {
		case e := <-a.events:
			a.noteReply(&e)
		case <-a.wake:
			a.takePushes()
		case <-timer.C:
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-a.s.Closing:
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// askThoseDue asks the nodes whose time has come, and returns when to call it again.
func (a *acquisition) askThoseDue(now time.Time) time.Time {
	at := a.lapsesAt().Add(time.Millisecond)
	if !a.splitSince.IsZero() {
		limit := a.splitTimeout()
		if !a.askedOthers {
			limit /= 2
		}
		at = earlier(at, a.splitSince.Add(limit))
	}
	for i := range a.nodes {
		n := &a.nodes[i]
		switch {
		case n.asking || n.voted && n.queued:
		case n.askAt.After(now):
			at = earlier(at, n.askAt)
		default:
			a.askVote(i)
		}
	}
	return at
}

// retryLostVotes schedules the nodes whose votes were lost. They still know the place.
func (a *acquisition) retryLostVotes(now time.Time) {
	for i := range a.nodes {
		if n := &a.nodes[i]; n.voted && !n.accepted {
			n.voted, n.askAt = false, a.retryAt(now)
		}
	}
	a.splits++
}

// retryAt is when to ask again for votes that were split or lost: a random time, later
// after each split.
func (a *acquisition) retryAt(now time.Time) time.Time {
	return now.Add(time.Duration((0.5 + a.s.jitter()) * float64(20*time.Millisecond<<min(a.splits, 5))))
}

// takePushes schedules the nodes for which askNow was called.
func (a *acquisition) takePushes() {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.nodes {
		if !a.askNowAt[i] {
			continue
		}
		a.askNowAt[i] = false
		a.splits = 0
		a.nodes[i].askAt, a.nodes[i].askAgain = now, a.nodes[i].asking
	}
}

// splitTimeout is how long votes without a majority are held: as long as the other votes
// may need if the key has become free at all nodes at once.
func (a *acquisition) splitTimeout() time.Duration {
	return max(50*time.Millisecond, min(4*a.rtt, a.bound/2))
}

// lapsesAt is when a majority may have dropped the place, and has not answered for as long
// as one attempt may take.
func (a *acquisition) lapsesAt() time.Time {
	acked := make([]time.Time, len(a.nodes))
	for i := range a.nodes {
		acked[i] = a.nodes[i].ackedAt
	}
	slices.SortFunc(acked, func(a, b time.Time) int { return b.Compare(a) })
	return acked[a.s.quorum-1].Add(max(a.placeTTL, a.s.timeout) + a.bound)
}
