package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	firstPause = 20 * time.Millisecond // before something is asked again
	maxPause   = time.Second
)

// debt is an owner that was given up and whose end the servers have not confirmed.
type debt struct {
	parent string
	mark   string
	name   string          // of its node; empty if that is not known
	after  <-chan struct{} // closed when the request that makes the node is over; may be nil
	ttl    time.Duration   // the node lasts no longer than that
}

// cleaner ends owners that were given up: detached from whoever gave them up, each on
// a goroutine of its own that lasts until the servers answer or the owner's TTL is
// over, when others may end it.
type cleaner struct {
	s *session

	mu    sync.Mutex
	debts int
	empty chan struct{} // closed when debts is 0, if somebody waits
}

// owe has the owner ended.
func (c *cleaner) owe(d debt) {
	c.mu.Lock()
	c.debts++
	c.mu.Unlock()
	if !c.s.start(func() { defer c.settle(); c.pay(d) }) {
		c.settle()
	}
}

func (c *cleaner) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.debts--; c.debts == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

func (c *cleaner) pay(d debt) {
	by := c.s.itself()
	if d.after != nil {
		select {
		case <-d.after:
		case <-by.stop:
			return
		}
	}
	until := time.Now().Add(d.ttl + 2*c.s.timeout)
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := c.end(by, d)
		if p := new(driver.PermanentError); err == nil || errors.As(err, &p) || time.Now().After(until) {
			return
		}
		if !sleep(by.ctx, pause) {
			return
		}
	}
}

// end asks once for the owner's node to be deleted.
func (c *cleaner) end(by caller, d debt) error {
	name := d.name
	if name == "" {
		m, ok, err := c.s.find(by, d.parent, d.mark)
		if err != nil || !ok {
			return classify(err)
		}
		name = m.name
	}
	if err := c.s.remove(by, d.parent+"/"+name); err != nil && err != zk.ErrNoNode && err != zk.ErrSessionExpired {
		return classify(err)
	}
	return nil
}

// drain waits until no debts are left, and reports whether that is so.
func (c *cleaner) drain(ctx context.Context) bool {
	c.mu.Lock()
	if c.debts == 0 {
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

// sleep returns false if the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
