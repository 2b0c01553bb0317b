package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

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
