package redlock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// tally counts what nodes have said about one lease.
type tally struct {
	yes      int // it was there, and has ended or been extended
	earlier  int // it is not, and this node may have seen it end by an earlier copy
	answered int
	waiting  bool // others wait for the key
	errs     []error
}

// Release ends leases, on all nodes. It returns when a majority has answered for each;
// the others are asked until they answer.
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
	asked, doubt := make([]time.Time, len(rs)), make([]uint64, len(rs))
	now := time.Now()
	for i := range rs {
		cmds[i] = command{op: opEnd, key: rs[i].Key, owner: rs[i].Owner, keep: rs[i].Keep}
		asked[i], doubt[i] = s.claims.release(&rs[i], now)
	}
	owe := func(b batch) {
		for i, r := range b.replies {
			keep, late := rs[i].Keep, in(doubt[i], b.node)
			if r.err == nil {
				keep = 0 // what may come yet is to be undone, no more
			}
			if r.err != nil || late {
				s.cleaners[b.node].owe(rs[i].ID, keep, rest(rs[i].Deadline), late)
			}
		}
	}
	tallies := make([]tally, len(rs))
	err := s.everywhere(ctx, s.timeout, cmds, func(b batch) bool {
		owe(b)
		enough := true
		for i := range rs {
			tallies[i].end(&b.replies[i], rs[i].Token)
			enough = enough && tallies[i].yes >= s.quorum
		}
		return enough
	}, owe)
	for i := range rs {
		out[i] = s.released(&tallies[i], asked[i], rs[i].Deadline, err)
		if tallies[i].answered >= s.quorum {
			s.claims.forget(rs[i].Owner)
		}
	}
	return out
}

// rest is how long nodes may still have a lease.
func rest(deadline time.Time) time.Duration {
	return max(time.Until(deadline), 0) + driver.Margin(time.Second)
}

// end counts one node's reply to an ending.
func (t *tally) end(r *reply, token int64) {
	switch {
	case r.err != nil:
		t.errs = append(t.errs, r.err)
		return
	case r.status == statusEnded:
		t.yes++
	case r.status != statusAbsent && r.token >= token && r.ousted < token:
		t.earlier++
	}
	t.answered++
}

// released judges what nodes have answered to an ending that was first asked for at
// the time asked.
func (s *session) released(t *tally, asked, deadline time.Time, stopped error) error {
	switch {
	case t.yes >= s.quorum:
		return nil
	case stopped != nil:
		return stopped
	case t.answered < s.quorum:
		return noMajority(len(s.nodes), t.answered, t.errs)
	}
	// Asked for in time, and so many nodes know a token as large as this lease's that
	// it may have been there: an earlier copy of this request has ended it, if nobody
	// else has taken it since. Fewer show that it was lost with their data.
	unknown := len(s.nodes) - t.answered
	if t.yes+t.earlier > 0 && t.yes+t.earlier+unknown >= s.quorum && driver.Remaining(deadline, asked) > 0 {
		return nil
	}
	return driver.ErrNotHeld
}
