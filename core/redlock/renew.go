package redlock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Renew extends leases. Each needs a majority of votes with an accepted token: a bare vote
// may be given back by a yield that is still on its way, unless this makes it one of them.
// None is made anew at a node that does not have it.
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
		s.d.health.asked(r.TTL)
	}
	tallies := make([]tally, len(rs))
	sent := time.Now()
	err := s.everywhere(ctx, s.bound(max(shortest, minTTL)), cmds, func(b batch) bool {
		enough := true
		for i := range rs {
			t := &tallies[i]
			t.renew(&b.replies[i])
			enough = enough && (t.yes >= s.quorum || t.possible(len(s.nodes)) < s.quorum)
		}
		return enough
	}, nil)
	for i := range rs {
		out[i] = s.renewed(&rs[i], &tallies[i], sent, err)
	}
	return out
}

// renew counts one node's reply to a renewal.
func (t *tally) renew(r *reply) {
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

// possible is how many of n nodes may still have the lease.
func (t *tally) possible(n int) int { return n - (t.answered - t.yes) }

func (s *session) renewed(r *driver.Renewal, t *tally, sent time.Time, stopped error) driver.Renewed {
	switch {
	case t.yes >= s.quorum:
		deadline := driver.Deadline(sent, r.TTL)
		s.claims.extend(r.Owner, deadline)
		return driver.Renewed{Deadline: deadline, Contended: t.waiting}
	case t.possible(len(s.nodes)) < s.quorum:
		// What a minority still has is of no use, and a late copy of the owner's
		// acquisition must not bring it back.
		doubt := s.claims.forget(r.Owner)
		for i, c := range s.cleaners {
			c.owe(r.ID, 0, r.TTL, in(doubt, i))
		}
		return driver.Renewed{Err: driver.ErrNotHeld}
	case stopped != nil:
		return driver.Renewed{Err: stopped}
	}
	return driver.Renewed{Err: noMajority(len(s.nodes), t.answered, t.errs)}
}
