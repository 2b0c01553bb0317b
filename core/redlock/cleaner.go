package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

const (
	firstPause = 20 * time.Millisecond // before endings are repeated
	maxPause   = time.Second
	maxDebts   = 64 // in one batch

	// late is how long a node that was silent and answers again takes at most to
	// execute what it was sent before. That may come in another order: a request of an
	// owner after its end, which the node remembers of the latest owners only.
	late = 100 * time.Millisecond
)

// debt is an owner that was given up and whose end one node has not confirmed.
type debt struct {
	id    driver.ID
	keep  time.Duration
	until time.Time // the node has forgotten the owner by then

	sent   bool      // an end is on its way, since the debt was last owed
	silent bool      // a request has had no answer since the last end that had
	next   time.Time // when to send the end again
}

// cleaner ends owners at one node: detached from whoever gave them up, and repeated
// until the node answers.
type cleaner struct {
	s      *session
	node   int
	worker *kit.Worker
	pause  time.Duration // the worker's, before it sends again what had no answer
	owed   *kit.Owed     // debts

	mu    sync.Mutex
	debts map[driver.Owner]debt
}

func newCleaner(s *session, node int) *cleaner {
	c := &cleaner{s: s, node: node, pause: firstPause, owed: kit.NewOwed(s.Life), debts: make(map[driver.Owner]debt)}
	c.worker = kit.NewWorker(s.Life, c.work)
	return c
}

// owe has an owner ended, whose place or lease lasts no longer than ttl after its last
// request was executed. Doubt says that the node may have such a request yet to execute.
func (c *cleaner) owe(id driver.ID, keep, ttl time.Duration, doubt bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, owed := c.debts[id.Owner]
	if !owed {
		c.owed.Add()
	}
	doubt = doubt || before.silent
	c.debts[id.Owner] = debt{id: id, keep: keep, until: time.Now().Add(ttl + 2*c.s.timeout), silent: doubt}
	c.worker.Wake()
}

// owes reports whether the node has yet to confirm an owner's end.
func (c *cleaner) owes(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, owed := c.debts[o]
	return owed
}

// work sends what is due, and returns when to look again.
func (c *cleaner) work() time.Duration {
	cmds, next := c.collect()
	switch {
	case len(cmds) == 0:
		return next
	case c.send(cmds):
		c.pause = firstPause
	default:
		kit.Sleep(c.s.Ctx, time.Duration((0.5+c.s.d.jitter())*float64(c.pause)))
		c.pause = min(2*c.pause, maxPause)
	}
	return 0
}

// collect returns some of the endings that are owed, and when to look again if there are
// none.
func (c *cleaner) collect() (cmds []command, next time.Duration) {
	now := time.Now()
	next = time.Hour
	c.mu.Lock()
	defer c.mu.Unlock()
	for o, d := range c.debts {
		if now.After(d.until) {
			c.settle(o)
			continue
		}
		if left := d.next.Sub(now); left > 0 {
			next = min(next, left)
			continue
		}
		d.sent = true
		c.debts[o] = d
		if cmds = append(cmds, command{op: opEnd, key: d.id.Key, owner: o, keep: d.keep}); len(cmds) == maxDebts {
			break
		}
	}
	return cmds, next
}

// send sends endings and reports whether the node has answered all.
func (c *cleaner) send(cmds []command) bool {
	ctx, cancel := context.WithTimeout(c.s.Ctx, c.s.timeout)
	defer cancel()
	all := true
	replies := c.s.nodes[c.node].run(ctx, cmds)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range replies {
		o := cmds[i].owner
		d, owed := c.debts[o]
		switch {
		case !owed:
		case !d.sent && r.err == nil: // owed again meanwhile: a request may have been executed after this end
		case kit.Refused(r.err), r.err == nil && !d.silent:
			c.settle(o)
		case r.err == nil: // once more, after what the node has still to execute
			d.silent, d.keep, d.next = false, 0, time.Now().Add(late)
			c.debts[o] = d
		default:
			all, d.silent = false, true
			c.debts[o] = d
		}
	}
	return all
}

// settle removes a debt. c.mu is held.
func (c *cleaner) settle(o driver.Owner) {
	delete(c.debts, o)
	c.owed.Done()
}
