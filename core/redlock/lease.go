package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
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

// cleaner ends owners at one node in the background, and repeats this until the node has
// confirmed each end.
type cleaner struct {
	ctx     context.Context // of the session
	wire    wire            // to the node
	timeout time.Duration   // of one attempt
	jitter  func() float64

	worker *kit.Worker
	pause  time.Duration // the worker's, before it repeats ends without an answer
	owed   *kit.Owed     // debts

	mu    sync.Mutex
	debts map[driver.Owner]debt
}

// debt is an owner that has ended, and whose end one node has not confirmed.
type debt struct {
	id          driver.ID
	keep        time.Duration
	forgottenAt time.Time // the node has forgotten the owner by then

	sent       bool      // an end is on its way, since the debt was last owed
	mayRunLate bool      // the node may execute a request of the owner after the last end that it has confirmed
	sendAt     time.Time // when to send the end again
}

const (
	firstPause = 20 * time.Millisecond // before ends are sent again
	maxPause   = time.Second
	maxDebts   = 64 // in one batch

	// lateRunTime is how long a node that did not answer, and now answers again, takes at
	// most to execute older requests. It may execute a request of an owner after the end of
	// that owner, and it remembers the ends of the latest owners only.
	lateRunTime = 100 * time.Millisecond
)

func newCleaner(life *kit.Life, w wire, timeout time.Duration, jitter func() float64) *cleaner {
	c := &cleaner{
		ctx: life.Ctx, wire: w, timeout: timeout, jitter: jitter,
		pause: firstPause, owed: kit.NewOwed(life), debts: make(map[driver.Owner]debt),
	}
	c.worker = kit.NewWorker(life, c.work)
	return c
}

// owe adds the debt of an owner, whose place or lease lasts no longer than ttl after its last
// request was executed. mayRunLate says that the node may still execute such a request.
func (c *cleaner) owe(id driver.ID, keep, ttl time.Duration, mayRunLate bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, owed := c.debts[id.Owner]
	if !owed {
		c.owed.Add()
	}
	mayRunLate = mayRunLate || before.mayRunLate
	c.debts[id.Owner] = debt{id: id, keep: keep, forgottenAt: time.Now().Add(ttl + 2*c.timeout), mayRunLate: mayRunLate}
	c.worker.Wake()
}

// owes reports whether the node has not confirmed an owner's end.
func (c *cleaner) owes(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, owed := c.debts[o]
	return owed
}

// work sends the ends that are due, and returns how long to wait for the next.
func (c *cleaner) work() time.Duration {
	cmds, wait := c.collect()
	switch {
	case len(cmds) == 0:
		return wait
	case c.send(cmds):
		c.pause = firstPause
	default:
		kit.Sleep(c.ctx, time.Duration((0.5+c.jitter())*float64(c.pause)))
		c.pause = min(2*c.pause, maxPause)
	}
	return 0
}

// collect returns a batch of the ends that are due or, if there are none, how long to wait.
func (c *cleaner) collect() (cmds []command, wait time.Duration) {
	now := time.Now()
	wait = time.Hour
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, d := range c.debts {
		if now.After(d.forgottenAt) {
			c.settle(o)
			continue
		}
		if left := d.sendAt.Sub(now); left > 0 {
			wait = min(wait, left)
			continue
		}
		d.sent = true
		c.debts[o] = d
		if cmds = append(cmds, command{op: opEnd, key: d.id.Key, owner: o, keep: d.keep}); len(cmds) == maxDebts {
			break
		}
	}
	return cmds, wait
}

// send sends ends, and reports whether the node has answered all of them.
func (c *cleaner) send(cmds []command) bool {
	ctx, cancel := context.WithTimeout(c.ctx, c.timeout)
	defer cancel()
	all := true
	replies := c.wire.run(ctx, cmds)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range replies {
		o := cmds[i].owner
		d, owed := c.debts[o]
		switch {
		case !owed:
		case !d.sent && r.err == nil: // owed again meanwhile: a request may have been executed after this end
		case kit.Refused(r.err), r.err == nil && !d.mayRunLate:
			c.settle(o)
		case r.err == nil: // once more, after the requests that the node may still execute
			d.mayRunLate, d.keep, d.sendAt = false, 0, time.Now().Add(lateRunTime)
			c.debts[o] = d
		default:
			all, d.mayRunLate = false, true
			c.debts[o] = d
		}
	}
	return all
}

// settle removes a confirmed or expired debt. c.mu is held.
func (c *cleaner) settle(o driver.Owner) {
	delete(c.debts, o)
	c.owed.Done()
}
