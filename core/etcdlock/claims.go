package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// claim is a lease that the session has been granted. Its fields from leases on are
// guarded by claims.mu.
type claim struct {
	id      driver.ID
	names   names
	create  int64     // revision of the owner's place
	granted time.Time // or a little later; zero if it was another session's
	token   int64

	// turning is held while a renewal writes to the owner's place, or a release that
	// has the key kept.
	turning chan struct{}

	leases    []clientv3.LeaseID // the owner's place is on one of them
	seconds   int64              // that the last of them lasts
	sent      time.Time          // before the request that it lasts so long from
	doubt     bool               // a request that writes the place may have run more than once, or may run yet
	place     place
	contended bool // what the session has said last
	ending    bool // a release has been sent
	timely    bool // the first one was sent before the deadline
	stop      func()
}

// fate is how an owner ended.
type fate uint8

const (
	released fate = iota + 1 // by a release of a lease that it held
	over                     // otherwise: expired, taken away, withdrawn
)

// claims are the leases of a session and, of the last few thousand owners that have
// ended, how they did.
type claims struct {
	grants *grants

	mu     sync.Mutex
	byID   map[driver.ID]*claim
	young  map[driver.ID]fate
	old    map[driver.ID]fate
	closed bool
}

// remembered is how many of the latest ended owners a session knows at least.
const remembered = 1024

func (c *claims) init(g *grants) {
	c.grants = g
	c.byID = make(map[driver.ID]*claim)
	c.young = make(map[driver.ID]fate)
}

// add takes in a lease that was granted. watch starts what listens for its end.
func (c *claims) add(cl *claim, watch func(*claim) (stop func())) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.byID[cl.id]; before != nil {
		before.halt()
	}
	c.byID[cl.id] = cl
	if !c.closed {
		cl.stop = watch(cl)
	}
	c.grants.add(cl.token, grant{name: cl.names.place, create: cl.create})
}

// note takes in a lease that another session was granted and that this one is to end, so
// that the request may be repeated.
func (c *claims) note(cl *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID[cl.id] == nil {
		c.byID[cl.id] = cl
	}
}

// get returns the lease of an owner; nil if the session has none.
func (c *claims) get(id driver.ID) *claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[id]
}

// fate returns how an owner has ended; 0 if that is not known.
func (c *claims) fate(id driver.ID) fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fateOf(id)
}

func (c *claims) fateOf(id driver.ID) fate {
	if f := c.young[id]; f != 0 {
		return f
	}
	return c.old[id]
}

// end removes an owner and remembers how it has ended. It returns false if it had ended
// before.
func (c *claims) end(id driver.ID, f fate) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byID[id]; cl != nil {
		cl.halt()
		c.grants.remove(cl.token)
		delete(c.byID, id)
	}
	if c.fateOf(id) != 0 {
		return false
	}
	if len(c.young) >= remembered {
		c.young, c.old = make(map[driver.ID]fate), c.young
	}
	c.young[id] = f
	return true
}

// part begins a release: the lease is nobody's for this process from here on, whatever
// becomes of the request. first says that no release was sent before, and timely that
// the first one was sent before the deadline.
func (c *claims) part(cl *claim, deadline, now time.Time) (first, timely bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.ending {
		return false, cl.timely
	}
	cl.ending, cl.timely = true, driver.Remaining(deadline, now) > 0
	cl.halt()
	c.grants.remove(cl.token)
	return true, cl.timely
}

// abandon ends what listens for the ends of leases, as the session is closed.
func (c *claims) abandon() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, cl := range c.byID {
		cl.halt()
		c.grants.remove(cl.token)
	}
}

// on returns the leases on one of which the owner's place is, and how long they last at
// most.
func (c *claims) on(cl *claim) ([]clientv3.LeaseID, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(cl.leases), cl.place.ttl
}

// halt ends what listens for the lease's end. It has none if another session was
// granted it.
func (cl *claim) halt() {
	if cl.stop != nil {
		cl.stop()
	}
}

// turn waits for the claim's turning.
func (cl *claim) turn(ctx context.Context) error {
	select {
	case cl.turning <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

func (cl *claim) turned() { <-cl.turning }
