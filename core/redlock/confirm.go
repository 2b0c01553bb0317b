package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// errTooLate says that the lease was all but over when it was granted.
var errTooLate = errors.New("redlock: the nodes took longer to grant the lease than it lasts")

// errVotesLost says that votes ended before a token was accepted with them, as after a
// node's restart. Who waits goes on waiting.
var errVotesLost = fmt.Errorf("redlock: votes were lost before a majority had accepted a token: %w", driver.ErrPlaceLost)

// confirm turns votes of a majority into a lease, by having a token accepted by a
// majority. Only then does the lock count as taken.
//
// Why tokens rise. A token is made larger than every one that a majority of voters has
// accepted, and a node accepts it only with its vote for that owner and only if it is
// larger than every one it has accepted before. Let A and B be two grants. Each was
// accepted by a majority, so some node has accepted both, at different times, with its
// vote for one and then for the other. Say A first: then B's token is larger, because
// that node has checked it. And A was over before B's vote there began, unless it was
// released: a vote lasts for longer than its holder believes in the lease, and is
// never taken away before. So the order of tokens at the common node is the order of
// the leases. A writer that crashes half-way leaves its token with a minority at most,
// or with a majority and nobody who believes in it: either way tokens were only made
// larger, and a skipped number harms nobody. It works as the second phase of Paxos
// does, with the vote for a ballot's promise; only that here votes expire.
//
// It needs nodes that keep what they have accepted. One that has lost its data accepts
// any token; then the order rests on the clocks of the nodes, see nextToken.
func (p *place) confirm(ctx context.Context) (driver.Grant, error) {
	// The same owner may have been granted the lease before: then a majority has
	// accepted the token, and every majority shows it. If fewer have, it is proposed
	// again, unless some node has accepted a larger one meanwhile.
	if token := p.adopted(); token != 0 {
		if err := p.propose(ctx, token); err != nil {
			return driver.Grant{}, err
		}
		if p.count((*side).hasAccepted) >= p.s.quorum {
			return p.granted(token)
		}
	}
	var token int64
	for i := range p.sides {
		if d := &p.sides[i]; d.voted {
			token = max(token, d.last.nextToken())
		}
	}
	if err := p.propose(ctx, token); err != nil {
		return driver.Grant{}, err
	}
	if p.count((*side).hasAccepted) >= p.s.quorum {
		return p.granted(token)
	}
	if p.count((*side).hasAnswered) < p.s.quorum {
		return driver.Grant{}, p.unreachable()
	}
	return driver.Grant{}, errVotesLost
}

// adopted is the largest token that voters have accepted for this owner; 0: none.
func (p *place) adopted() int64 {
	var token int64
	for i := range p.sides {
		if d := &p.sides[i]; d.voted {
			token = max(token, d.last.accepted)
		}
	}
	return token
}

// propose has the voters accept a token, until a majority has or cannot any more. A
// vote that comes meanwhile counts too.
func (p *place) propose(ctx context.Context, token int64) error {
	proposed := 0
	offer := func(i int) {
		proposed++
		p.send(i, command{op: opAccept, channel: p.s.channel, ttl: p.r.TTL, token: token})
	}
	accepted := 0
	for i := range p.sides {
		d := &p.sides[i]
		d.accepted, d.refused = d.voted && d.last.accepted == token, false
		if d.accepted {
			accepted++
		}
	}
	if accepted >= p.s.quorum {
		return nil
	}
	for i := range p.sides {
		if d := &p.sides[i]; d.voted && !d.accepted {
			offer(i)
		}
	}
	for accepted < p.s.quorum && (proposed > 0 || p.count((*side).isAsked) > 0) {
		e, err := p.await(ctx)
		if err != nil {
			return err
		}
		d := &p.sides[e.node]
		switch {
		case e.op != opAccept:
			p.take(&e)
			if d.voted && !d.accepted {
				offer(e.node)
			}
			continue
		case e.err != nil:
			d.doubt, d.answered, d.err = true, false, e.err
		case e.status == statusGranted:
			d.accepted, d.last = true, e.answer
			accepted++
		default:
			d.refused = true
			d.last = e.answer
		}
		proposed--
	}
	return nil
}

// granted makes the grant. The deadline counts from before the first send of those
// votes that are needed: with these a majority still excludes others at that time.
func (p *place) granted(token int64) (driver.Grant, error) {
	var sent []time.Time
	waiting := 0
	for i := range p.sides {
		if d := &p.sides[i]; d.accepted {
			sent = append(sent, d.sent)
			waiting = max(waiting, d.last.waiting)
		}
	}
	slices.SortFunc(sent, func(a, b time.Time) int { return b.Compare(a) })
	deadline := driver.Deadline(sent[p.s.quorum-1], p.r.TTL)
	if driver.Remaining(deadline, time.Now()) <= 0 {
		if p.r.Wait {
			return driver.Grant{}, driver.ErrPlaceLost
		}
		return driver.Grant{}, errTooLate
	}
	contended := p.s.claims.grant(p.r.ID, deadline)
	return driver.Grant{ID: p.r.ID, Token: token, Deadline: deadline, Contended: contended || waiting > 0}, nil
}
