package etcdlock

import (
	"container/heap"
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// cleaners bounds how many endings of given-up owners are under way at once.
const cleaners = 16

// debt is what was given up and must end at the server: leases, with all that is on
// them. A lease that is revoked takes with it whatever a late request may still try to
// put on it.
type debt struct {
	leases []clientv3.LeaseID
	spare  term      // to be one when the place is gone; its id is 0 if there is none
	place  string    // to be deleted; "" is none
	used   bool      // places were on the leases, and those behind are to see that they were given up
	knock  string    // to be written, before its lease is revoked; "" is nothing
	keep   bool      // it is not given up, but kept until due
	due    time.Time // when to end it
	until  time.Time // the server has ended it by then
	done   func()    // called when it is over, with c.mu held; nil is nothing
	pause  time.Duration
}

// cleaner ends what was given up: detached from whoever gave it up, and repeated until
// the server answers.
type cleaner struct {
	s    *session
	wake chan struct{}

	mu      sync.Mutex
	started bool
	debts   debtHeap
	under   int           // how many are being paid
	empty   chan struct{} // closed when nothing is owed, if somebody waits
	closing bool          // what is kept is let go
}

func newCleaner(s *session) *cleaner {
	return &cleaner{s: s, wake: make(chan struct{}, 1)}
}

// owe has a debt paid. Its until is ttl, and the time of two attempts, after it is due.
func (c *cleaner) owe(d debt, ttl time.Duration) {
	if d.due.IsZero() {
		d.due = time.Now()
	}
	d.until, d.pause = d.due.Add(ttl+2*c.s.timeout), firstPause
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing && d.keep {
		return
	}
	heap.Push(&c.debts, &d)
	if !c.started {
		c.started = true
		c.s.start(c.run)
	}
	c.nudge()
}

func (c *cleaner) nudge() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (c *cleaner) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		d, next := c.take()
		if d != nil {
			c.s.start(func() { c.pay(d) })
			continue
		}
		if next < 0 {
			timer.Stop()
		} else {
			timer.Reset(next)
		}
		select {
		case <-c.wake:
		case <-timer.C:
		case <-c.s.ctx.Done():
			return
		}
	}
}

// take returns what to pay at once, or else how long until something is due; negative
// if nothing will be.
func (c *cleaner) take() (*debt, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.debts) == 0 || c.under >= cleaners {
		return nil, -1
	}
	if wait := time.Until(c.debts[0].due); wait > 0 {
		return nil, wait
	}
	c.under++
	return heap.Pop(&c.debts).(*debt), 0
}

func (c *cleaner) pay(d *debt) {
	err := c.settle(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.under--
	c.nudge()
	now := time.Now()
	if passing(err) && now.Before(d.until) && c.s.ctx.Err() == nil {
		d.due, d.keep = now.Add(d.pause), false
		d.pause = min(2*d.pause, maxPause)
		heap.Push(&c.debts, d)
		return
	}
	if d.done != nil {
		d.done()
	}
	c.tell()
}

// settle does what a debt says. It may be done again.
func (c *cleaner) settle(d *debt) error {
	ctx, cancel := context.WithTimeoutCause(c.s.ctx, c.s.timeout, &silence{c.s.timeout})
	defer cancel()
	if d.knock != "" {
		c.knock(ctx, d)
		d.knock = "" // one message is enough, and may be lost
	}
	if d.place != "" || d.used {
		if err := c.part(ctx, d); err != nil {
			return err
		}
		d.place, d.used = "", false
	}
	if t := d.spare; t.id != 0 {
		if d.spare = (term{}); !c.s.spares.add(t) { // there are enough
			d.leases, d.used = append(d.leases, t.id), t.used
			return c.settle(d)
		}
	}
	for len(d.leases) > 0 {
		lease := d.leases[0]
		if _, err := once(ctx, c.s, func(ctx context.Context) (none, error) { return c.s.revoke(ctx, lease) }); err != nil && !absent(err) {
			return err
		}
		d.leases = d.leases[1:]
	}
	return nil
}

// part deletes a debt's place, and has what shows that its leases live outlast them.
func (c *cleaner) part(ctx context.Context, d *debt) error {
	var ops []clientv3.Op
	if d.place != "" {
		ops = append(ops, clientv3.OpDelete(d.place))
	}
	if len(d.leases) > 0 {
		on, err := c.s.outlasting(ctx)
		if err != nil {
			return err
		}
		for _, lease := range d.leases {
			ops = append(ops, clientv3.OpPut(lifeOf(lease), "", clientv3.WithLease(on)))
		}
	}
	_, err := once(ctx, c.s, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return c.s.d.client.Txn(ctx).Then(ops...).Commit()
	})
	return err
}

// knock lets the holder of a key hear of a request that was refused.
func (c *cleaner) knock(ctx context.Context, d *debt) {
	if len(d.leases) == 0 {
		t, err := c.s.newTerm(ctx, minTTL)
		if err != nil {
			return
		}
		d.leases = append(d.leases, t.id)
	}
	_, _ = once(ctx, c.s, func(ctx context.Context) (none, error) {
		_, err := c.s.d.client.Put(ctx, d.knock, "", clientv3.WithLease(d.leases[0]))
		return none{}, err
	})
}

// tell wakes who waits for the cleaner to be empty. c.mu is held.
func (c *cleaner) tell() {
	if c.empty != nil && len(c.debts) == 0 && c.under == 0 {
		close(c.empty)
		c.empty = nil
	}
}

// drain waits until nothing is owed, or ctx ends. What is kept is left to its lease.
func (c *cleaner) drain(ctx context.Context) bool {
	c.mu.Lock()
	c.closing = true
	c.debts.forget(func(d *debt) bool { return d.keep })
	if len(c.debts) == 0 && c.under == 0 {
		c.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	c.empty = empty
	c.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-ctx.Done():
		return false
	}
}

// debtHeap is ordered by due.
type debtHeap []*debt

func (h *debtHeap) forget(which func(*debt) bool) {
	var left debtHeap
	for _, d := range *h {
		if !which(d) {
			left = append(left, d)
		}
	}
	*h = left
	heap.Init(h)
}

func (h debtHeap) Len() int           { return len(h) }
func (h debtHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h debtHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is heap.Interface's.
func (h *debtHeap) Push(x any) { *h = append(*h, x.(*debt)) }

// Pop is heap.Interface's.
func (h *debtHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return d
}
