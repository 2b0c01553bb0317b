package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

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
