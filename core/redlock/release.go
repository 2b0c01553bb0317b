package redlock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// Release ends leases at all nodes. It returns when a majority has ended each of them; the
// cleaners repeat the request at the other nodes.
func (s *session) Release(ctx context.Context, rs []driver.Ending) []error {
	out := make([]error, len(rs))
	if err := s.Enter(); err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer s.Leave()
	if len(rs) == 0 {
		return out
	}
	cmds := make([]command, len(rs))
	asked, late := make([]time.Time, len(rs)), make([]uint64, len(rs))
	now := time.Now()
	for i := range rs {
		cmds[i] = command{op: opEnd, key: rs[i].Key, owner: rs[i].Owner, keep: rs[i].Keep}
		asked[i], late[i] = s.claims.noteEnd(&rs[i], now)
	}
	oweMissing := func(b nodeReplies) {
		for i, r := range b.replies {
			keep, isLate := rs[i].Keep, contains(late[i], b.node)
			if r.err == nil {
				keep = 0 // the key was kept from then on; a late request is only undone
			}
			if r.err != nil || isLate {
				s.cleaners[b.node].owe(rs[i].ID, keep, leaseRemains(rs[i].Deadline), isLate)
			}
		}
	}
	tallies := make([]tally, len(rs))
	err := s.askAll(ctx, s.timeout, cmds, func(b nodeReplies) bool {
		oweMissing(b)
		enough := true
		for i := range rs {
			tallies[i].countEnd(&b.replies[i], rs[i].Token)
			enough = enough && tallies[i].yes >= s.quorum
		}
		return enough
	}, oweMissing)
	for i := range rs {
		out[i] = s.releaseResult(&tallies[i], asked[i], rs[i].Deadline, err)
		if tallies[i].answered >= s.quorum {
			s.claims.remove(rs[i].Owner)
		}
	}
	return out
}

// leaseRemains is how long nodes may still have a lease.
func leaseRemains(deadline time.Time) time.Duration {
	return max(time.Until(deadline), 0) + driver.Margin(time.Second)
}

// countEnd counts one node's reply to the end of a lease.
func (t *tally) countEnd(r *reply, token int64) {
	switch {
	case r.err != nil:
		t.errs = append(t.errs, r.err)
		return
	case r.status == statusEnded:
		t.yes++
	case r.status != statusAbsent && r.token >= token && r.ousted < token:
		t.endedEarlier++
	}
	t.answered++
}

// releaseResult is the result of ending a lease. asked is when its end was first asked for,
// and stopped why askAll has returned early.
func (s *session) releaseResult(t *tally, asked, deadline time.Time, stopped error) error {
	switch {
	case t.yes >= s.quorum:
		return nil
	case stopped != nil:
		return stopped
	case t.answered < s.quorum:
		return noMajority(len(s.nodes), t.answered, t.errs)
	}
	// A majority may know a token as large as this lease's, and the end was asked for before
	// the deadline: then an earlier copy of this request has ended the lease. If fewer nodes
	// know such a token, the lease was lost with their data.
	unknown := len(s.nodes) - t.answered
	if t.yes+t.endedEarlier > 0 && t.yes+t.endedEarlier+unknown >= s.quorum && driver.Remaining(deadline, asked) > 0 {
		return nil
	}
	return driver.ErrNotHeld
}
