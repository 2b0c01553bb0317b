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
// Who comes later therefore draws a larger one, and a node votes for the smallest
// ticket that it knows, so that nobody passes a place that a majority knows. Equal
// tickets, of those who came at once, are ordered by their owners.
func (p *place) wait(ctx context.Context) (driver.Grant, error) {
	began := time.Now()
	for i := range p.sides {
		d := &p.sides[i]
		if d.answered {
			p.ticket = max(p.ticket, d.last.nextTicket())
		}
		d.next, d.acked = began, began
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		switch votes := p.count((*side).hasVoted); {
		case votes >= p.s.quorum:
			g, err := p.confirm(ctx)
			if err != errVotesLost {
				return g, err
			}
			p.reconsider(now)
			continue
		case len(p.sides)-p.count((*side).isOver) < p.s.quorum:
			return driver.Grant{}, driver.ErrPlaceLost
		case now.After(p.forgotten()):
			return driver.Grant{}, p.unreachable()
		case votes == 0:
			p.since = time.Time{}
		case p.since.IsZero():
			p.since, p.swept = now, false
		case now.Sub(p.since) >= p.patience():
			p.yield(p.retry(now))
		case !p.swept && now.Sub(p.since) >= p.patience()/2:
			// The others have not told that they are free, or their message was lost.
			p.swept = true
			for i := range p.sides {
				if d := &p.sides[i]; !d.voted {
					d.next = now
				}
			}
		}
		if !p.told && p.count((*side).isQueued) >= p.s.quorum {
			p.told = true
			p.s.sink.Waiting(p.r.ID)
		}
		timer.Reset(p.askDue(now).Sub(now))
		select {
		case e := <-p.events:
			p.take(&e)
		case <-p.wake:
			p.woken()
		case <-timer.C:
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-p.s.Closing:
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// askDue asks the nodes that are due and returns when to look again.
func (p *place) askDue(now time.Time) time.Time {
	at := p.forgotten().Add(time.Millisecond)
	if !p.since.IsZero() {
		limit := p.patience()
		if !p.swept {
			limit /= 2
		}
		at = earlier(at, p.since.Add(limit))
	}
	for i := range p.sides {
		d := &p.sides[i]
		switch {
		case d.asking || d.voted && d.queued:
		case d.next.After(now):
			at = earlier(at, d.next)
		default:
			p.vote(i)
		}
	}
	return at
}

// reconsider has the nodes asked again whose votes were lost. The place is still there.
func (p *place) reconsider(now time.Time) {
	for i := range p.sides {
		if d := &p.sides[i]; d.voted && !d.accepted {
			d.voted, d.next = false, p.retry(now)
		}
	}
	p.splits++
}

// retry is when to ask again where votes were split or lost: at random, and later each
// time.
func (p *place) retry(now time.Time) time.Time {
	return now.Add(time.Duration((0.5 + p.s.d.jitter()) * float64(20*time.Millisecond<<min(p.splits, 5))))
}

// woken takes the pushes that have come.
func (p *place) woken() {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.sides {
		if !p.nudged[i] {
			continue
		}
		p.nudged[i] = false
		p.splits = 0
		p.sides[i].next, p.sides[i].again = now, p.sides[i].asking
	}
}

// patience is how long votes are held that are too few: as long as those of the other
// nodes may need when the key has become free everywhere at once.
func (p *place) patience() time.Duration {
	return max(50*time.Millisecond, min(4*p.rtt, p.bound/2))
}

// forgotten is when a majority may not know the place any more, and was silent for as
// long as one attempt may be.
func (p *place) forgotten() time.Time {
	acked := make([]time.Time, len(p.sides))
	for i := range p.sides {
		acked[i] = p.sides[i].acked
	}
	slices.SortFunc(acked, func(a, b time.Time) int { return b.Compare(a) })
	return acked[p.s.quorum-1].Add(max(p.length, p.s.timeout) + p.bound)
}
