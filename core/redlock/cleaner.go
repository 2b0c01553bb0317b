package redlock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
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
	s    *session
	node int
	wake chan struct{}

	mu      sync.Mutex
	started bool
	debts   map[driver.Owner]debt
	empty   chan struct{} // closed when debts runs empty, if somebody waits
}

func newCleaner(s *session, node int) *cleaner {
	return &cleaner{s: s, node: node, wake: make(chan struct{}, 1), debts: make(map[driver.Owner]debt)}
}

// owe has an owner ended, whose place or lease lasts no longer than ttl after its last
// request was executed. Doubt says that the node may have such a request yet to execute.
func (c *cleaner) owe(id driver.ID, keep, ttl time.Duration, doubt bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	doubt = doubt || c.debts[id.Owner].silent
	c.debts[id.Owner] = debt{id: id, keep: keep, until: time.Now().Add(ttl + 2*c.s.timeout), silent: doubt}
	if !c.started {
		c.started = true
		c.s.workers.Go(c.run)
	}
	c.nudge()
}

// owes reports whether the node has yet to confirm an owner's end.
func (c *cleaner) owes(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, owed := c.debts[o]
	return owed
}

func (c *cleaner) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cleaner) run() {
	pause := firstPause
	for {
		cmds, next := c.collect()
		if len(cmds) == 0 {
			timer := time.NewTimer(next)
			select {
			case <-c.wake:
			case <-timer.C:
			case <-c.s.ctx.Done():
				timer.Stop()
				return
			}
			timer.Stop()
			continue
		}
		if c.send(cmds) {
			pause = firstPause
			continue
		}
		if sleep(c.s.ctx, time.Duration((0.5+c.s.d.jitter())*float64(pause))) != nil {
			return
		}
		pause = min(2*pause, maxPause)
	}
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
	ctx, cancel := context.WithTimeout(c.s.ctx, c.s.timeout)
	defer cancel()
	all := true
	replies := c.s.nodes[c.node].run(ctx, cmds)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, r := range replies {
		o, refused := cmds[i].owner, new(driver.PermanentError)
		d, owed := c.debts[o]
		switch {
		case !owed:
		case !d.sent && r.err == nil: // owed again meanwhile: a request may have been executed after this end
		case errors.As(r.err, &refused), r.err == nil && !d.silent:
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
	if len(c.debts) == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

// drain waits until no debts are left and reports whether none are.
func (c *cleaner) drain(ctx context.Context) bool {
	c.mu.Lock()
	if len(c.debts) == 0 {
		c.mu.Unlock()
		return true
	}
	if c.empty == nil {
		c.empty = make(chan struct{})
	}
	empty := c.empty
	c.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-ctx.Done():
	case <-c.s.ctx.Done():
	}
	return false
}
