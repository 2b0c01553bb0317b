package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// confirm turns the votes of a majority into a lease: the lock is taken when a majority has
// accepted a token. If the nodes were asked for their votes with a token, and a majority has
// accepted that, nothing is left to do. Otherwise one is proposed.
//
// Why tokens rise. A token is made larger than every one that a majority of voters has
// accepted, and a node accepts it only with its vote for that owner and only if it is
// larger than every one it has accepted before. Let A and B be two grants. Each was
// accepted by a majority, so some node has accepted both, at different times, with its
// vote for one and then for the other. Say A first: then B's token is larger, because
// that node has checked it. And A was released or over before B's vote there began: a vote
// lasts longer than the holder's deadline, and is never taken away before. So the order of
// tokens at the common node is the order of the leases. A process that crashes half-way
// leaves its token at a minority, or at a majority without a holder: either way tokens were
// only made larger, and a skipped number does no harm. This is the second phase of Paxos,
// with the vote as a ballot's promise, except that votes expire. With its vote a node may
// accept a token that was chosen without asking anybody, by the same two rules.
//
// A yield gives back a vote with its token, and names the token, since it may be executed when
// its owner has come again. So an acquisition makes each token once, and takes none up that it
// may have given back.
//
// The nodes must keep what they have accepted. A node that has lost its data accepts any
// token; then the order depends on the clocks of the nodes, see health.clock.
func (a *acquisition) confirm(ctx context.Context) (driver.Grant, error) {
	// The same owner may have been granted the lease before: then a majority has
	// accepted the token, and every majority shows it. If fewer have, it is proposed
	// again, unless some node has accepted a larger one meanwhile.
	if token := a.acceptedToken(); token != 0 {
		if err := a.propose(ctx, token); err != nil {
			return driver.Grant{}, err
		}
		if a.count((*nodeState).hasAccepted) >= a.s.quorum {
			return a.grant(token)
		}
	}
	token := a.s.clock() // as a hybrid logical clock does (Kulkarni and others, 2014)
	for i := range a.nodes {
		if n := &a.nodes[i]; n.voted {
			token = max(token, n.last.token+1)
		}
	}
	token = a.newToken(token)
	if err := a.propose(ctx, token); err != nil {
		return driver.Grant{}, err
	}
	if a.count((*nodeState).hasAccepted) >= a.s.quorum {
		return a.grant(token)
	}
	if a.count((*nodeState).hasAnswered) < a.s.quorum {
		return driver.Grant{}, a.unreachable()
	}
	return driver.Grant{}, errVotesLost
}

// errTooLate says that the lease had no usable time left when it was granted.
var errTooLate = errors.New("redlock: the nodes took longer to grant the lease than it lasts")

// errVotesLost says that votes ended before a majority had accepted a token with them, as
// after a node's restart. A waiting acquisition goes on waiting.
var errVotesLost = fmt.Errorf("redlock: votes were lost before a majority had accepted a token: %w", driver.ErrPlaceLost)

// acceptedToken is the largest token that voters have accepted for this owner, other than by
// this acquisition, or the one that came with its votes; 0: none.
func (a *acquisition) acceptedToken() int64 {
	var token, bid int64
	for i := range a.nodes {
		switch n := &a.nodes[i]; {
		case !n.voted:
		case n.last.accepted == a.bid:
			bid = a.bid
		case !slices.Contains(a.proposed, n.last.accepted):
			token = max(token, n.last.accepted)
		}
	}
	return cmp.Or(token, bid)
}

// propose sends a token to the voters. It returns when a majority has accepted it, or when all of
// them have answered and no vote is under way: whoever proposes again has no answer to come that
// is of an older token. A vote that comes meanwhile counts too.
func (a *acquisition) propose(ctx context.Context, token int64) error {
	underWay := 0
	see := func(i int) {
		n := &a.nodes[i]
		if n.accepted = n.voted && n.last.accepted == token; n.voted && !n.accepted {
			underWay++
			a.send(i, command{op: opAccept, channel: a.s.channel, ttl: a.r.TTL, token: token})
		}
	}
	for i := range a.nodes {
		see(i)
	}
	for a.count((*nodeState).hasAccepted) < a.s.quorum && (underWay > 0 || a.count((*nodeState).isAsked) > 0) {
		e, err := a.await(ctx)
		if err != nil {
			return err
		}
		n := &a.nodes[e.node]
		if e.op != opAccept {
			a.noteReply(&e)
			see(e.node)
			continue
		}
		underWay--
		if e.err != nil {
			n.mayRunLate, n.answered, n.err = true, false, e.err
			continue
		}
		n.last = e.answer
		n.accepted = n.accepted || e.status == statusGranted
	}
	return nil
}

// grant makes the grant. The deadline counts from the time at which the oldest vote of the
// newest majority was requested: until then that majority excludes others.
func (a *acquisition) grant(token int64) (driver.Grant, error) {
	var sent []time.Time
	waiting := 0
	for i := range a.nodes {
		if n := &a.nodes[i]; n.accepted {
			sent = append(sent, n.votedAt)
			waiting = max(waiting, n.last.waiting)
		}
	}
	slices.SortFunc(sent, func(a, b time.Time) int { return b.Compare(a) })
	deadline := driver.Deadline(sent[a.s.quorum-1], a.r.TTL)
	if driver.Remaining(deadline, time.Now()) <= 0 {
		if a.r.Wait {
			return driver.Grant{}, driver.ErrPlaceLost
		}
		return driver.Grant{}, errTooLate
	}
	contended, lost := a.s.claims.noteGrant(a.r.ID, a, deadline)
	if a.s.ousted(lost) {
		return driver.Grant{}, driver.ErrPlaceLost
	}
	return driver.Grant{ID: a.r.ID, Token: token, Deadline: deadline, Contended: contended || waiting > 0}, nil
}

// majority is the smallest number of n nodes of which any two sets have one in common.
func majority(n int) int { return n/2 + 1 }

// tally counts the nodes' replies about one lease.
type tally struct {
	yes          int // nodes that have ended or renewed it
	endedEarlier int // nodes without it that may have ended it by an earlier copy of the request
	answered     int
	waiting      bool // others wait for the key
	errs         []error
}

// NoMajorityError says that too few nodes answered for a majority, so that the store
// counts as unreachable.
type NoMajorityError struct {
	Nodes    int // of the driver
	Answered int // of them
	Err      error
}

func (e *NoMajorityError) Error() string {
	return fmt.Sprintf("redlock: %d of %d nodes answered, and %d are needed: %v", e.Answered, e.Nodes, majority(e.Nodes), e.Err)
}

// Unwrap returns the errors of the nodes that did not answer.
func (e *NoMajorityError) Unwrap() error { return e.Err }

// noMajority returns a NoMajorityError, as a permanent error if the permanent errors leave
// no majority.
func noMajority(n, answered int, errs []error) error {
	permanent := 0
	for _, err := range errs {
		if kit.Refused(err) {
			permanent++
		}
	}
	err := &NoMajorityError{Nodes: n, Answered: answered, Err: errors.Join(errs...)}
	if n-permanent < majority(n) {
		return &driver.PermanentError{Err: err}
	}
	return err
}
