package redlock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Renew extends leases. Each needs a majority of votes with an accepted token. A node that
// has the vote without a token, or with one of an earlier attempt, accepts the token now, since a
// late yield would give back the vote. A node without the vote does not get it by a renewal.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	if err := s.Enter(); err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer s.Leave()
	if len(rs) == 0 {
		return out
	}
	cmds := make([]command, len(rs))
	shortest := rs[0].TTL
	for i, r := range rs {
		cmds[i] = command{op: opRenew, key: r.Key, owner: r.Owner, ttl: r.TTL, token: r.Token}
		shortest = min(shortest, r.TTL)
		s.health.noteTTL(r.TTL)
	}
	tallies := make([]tally, len(rs))
	sent := time.Now()
	err := s.askAll(ctx, s.bound(max(shortest, minTTL)), cmds, func(b nodeReplies) bool {
		enough := true
		for i := range rs {
			t := &tallies[i]
			t.countRenewal(&b.replies[i])
			enough = enough && (t.yes >= s.quorum || t.possible(len(s.nodes)) < s.quorum)
		}
		return enough
	}, nil)
	for i := range rs {
		out[i] = s.renewResult(&rs[i], &tallies[i], sent, err)
	}
	return out
}

// countRenewal counts one node's reply to a renewal.
func (t *tally) countRenewal(r *reply) {
	if r.err != nil {
		t.errs = append(t.errs, r.err)
		return
	}
	t.answered++
	t.waiting = t.waiting || r.waiting > 0
	if r.status == statusGranted {
		t.yes++
	}
}

// possible is the number of the n nodes that may still have the lease.
func (t *tally) possible(n int) int { return n - (t.answered - t.yes) }

func (s *session) renewResult(r *driver.Renewal, t *tally, sent time.Time, stopped error) driver.Renewed {
	switch {
	case t.yes >= s.quorum:
		deadline := driver.Deadline(sent, r.TTL)
		s.claims.noteRenewal(r.Owner, deadline)
		return driver.Renewed{Deadline: deadline, Contended: t.waiting}
	case t.possible(len(s.nodes)) < s.quorum:
		// The votes of a minority are ended, and a late copy of the owner's acquisition must
		// not bring the lease back.
		late := s.claims.remove(r.Owner)
		for i, c := range s.cleaners {
			c.owe(r.ID, 0, r.TTL, contains(late, i))
		}
		return driver.Renewed{Err: driver.ErrNotHeld}
	case stopped != nil:
		return driver.Renewed{Err: stopped}
	}
	return driver.Renewed{Err: noMajority(len(s.nodes), t.answered, t.errs)}
}
