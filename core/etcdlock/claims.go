package etcdlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// claims are the leases of a session, and the end reasons of the last few thousand owners
// that have ended.
type claims struct {
	grants *grants

	mu     sync.Mutex
	byID   map[driver.ID]*claim
	young  map[driver.ID]endReason
	old    map[driver.ID]endReason
	closed bool

	unwatched []*claim // in the order of their grants, for startWatches
}

// claim is a lease that the session was granted. Its fields from leases on are guarded by
// claims.mu.
type claim struct {
	id      driver.ID
	names   names
	create  int64     // revision of the owner's place, which is the token
	granted time.Time // or a little later; zero if another session was granted it
	unsaid  bool      // the place does not say that its owner holds the key

	// writing is a lock. A renewal holds it while it writes the owner's place, and so does a
	// release that keeps the key.
	writing chan struct{}
	readAt  atomic.Int64 // the revision at which whoever had it has last read the queue

	leases      []clientv3.LeaseID // the owner's place is on one of them
	seconds     int64              // the TTL of the last of them, from sent on
	sent        time.Time          // when its last grant or renewal was sent
	uncertain   bool               // a transaction that writes the place may have run twice, or may still run
	place       place
	contended   bool  // as last reported to the sink, or by a grant or a renewal
	contendedAt int64 // the revision at which etcd said so
	releasing   bool  // a release has been sent
	inTime      bool  // the first release was sent before the deadline
	cancelWatch func()
	stopped     bool // it is not watched, or not any more
}

// endReason is how an owner ended.
type endReason uint8

const (
	released endReason = iota + 1 // by a release of a lease that it held
	notHeld                       // otherwise: expired, taken away, withdrawn
)

// minEnded is how many ended owners a session remembers at least.
const minEnded = 1024

func (c *claims) init(g *grants) {
	c.grants = g
	c.byID = make(map[driver.ID]*claim)
	c.young = make(map[driver.ID]endReason)
}

// watchDelay is how long a lease is held before its key is watched. Most leases are released
// sooner. The delay misses nothing: the watch begins at the revision of the grant.
const watchDelay = 20 * time.Millisecond

// add adds a lease that was granted, and calls startWatches after watchDelay.
func (c *claims) add(cl *claim, startWatches func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.byID[cl.id]; before != nil {
		before.stopWatch()
	}
	c.byID[cl.id] = cl
	if !c.closed {
		if c.unwatched = append(c.unwatched, cl); len(c.unwatched) == 1 {
			time.AfterFunc(watchDelay, startWatches)
		}
	}
	c.grants.add(cl.create, cl.names.place)
}

// addOfOtherSession adds a lease that another session was granted and that this one is to
// release. A repeated release finds it here.
func (c *claims) addOfOtherSession(cl *claim) {
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

// find returns the lease of an owner, or else how the owner has ended.
func (c *claims) find(id driver.ID) (*claim, endReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byID[id]; cl != nil {
		return cl, 0
	}
	return nil, c.endReasonOf(id)
}

// endReasonOf returns how an owner has ended; 0 if that is not known. c.mu is held.
func (c *claims) endReasonOf(id driver.ID) endReason {
	if reason := c.young[id]; reason != 0 {
		return reason
	}
	return c.old[id]
}

// end removes an owner and remembers how it has ended. It reports whether this is its first end.
func (c *claims) end(id driver.ID, reason endReason) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byID[id]; cl != nil {
		cl.stopWatch()
		c.grants.remove(cl.create)
		delete(c.byID, id)
	}
	if c.endReasonOf(id) != 0 {
		return false
	}
	if len(c.young) >= minEnded {
		c.young, c.old = make(map[driver.ID]endReason), c.young
	}
	c.young[id] = reason
	return true
}

// beginRelease begins a release. From here on this process no longer holds the lease,
// whatever the request's outcome. first reports that this is the first release of the lease,
// and inTime that the first one was sent before the deadline.
func (c *claims) beginRelease(cl *claim, deadline, now time.Time) (first, inTime bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl.releasing {
		cl.uncertain = true // the place may be deleted twice
		return false, cl.inTime
	}
	cl.releasing, cl.inTime = true, driver.Remaining(deadline, now) > 0
	cl.stopWatch()
	c.grants.remove(cl.create)
	return true, cl.inTime
}

// hear notes whether others wait, as etcd said at that revision, and returns what it said last.
func (c *claims) hear(cl *claim, others bool, rev int64) (last, changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rev >= cl.contendedAt {
		changed = cl.contended != others
		cl.contended, cl.contendedAt = others, rev
	}
	return cl.contended, changed
}

// close stops watching all leases, as the session is closed.
func (c *claims) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, cl := range c.byID {
		cl.stopWatch()
		c.grants.remove(cl.create)
	}
}

// giveUp returns the etcd leases that the owner's place may be on, and how long they last
// at most. They are to be revoked, and the place to be deleted, so that no other place is put
// on them, though a repeated release is answered in the meantime.
func (c *claims) giveUp(cl *claim) ([]clientv3.LeaseID, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cl.uncertain = true
	return slices.Clone(cl.leases), cl.place.ttl
}

// foreign reports whether another session was granted the lease.
func (cl *claim) foreign() bool { return cl.granted.IsZero() }

// stopWatch stops watching the lease. A lease of another session is not watched. claims.mu is held.
func (cl *claim) stopWatch() {
	cl.stopped = true
	if cl.cancelWatch != nil {
		cl.cancelWatch()
	}
}

// lockWriting takes the lock on writing the owner's place.
func (cl *claim) lockWriting(ctx context.Context) error {
	select {
	case cl.writing <- struct{}{}:
		return nil
	case <-ctx.Done():
		return contextError(ctx)
	}
}

// unlockWriting gives it back.
func (cl *claim) unlockWriting() { <-cl.writing }

// grants are the names of the places of the leases that the driver's sessions hold, by token. A token
// is a revision of etcd, so it is unique in its cluster.
type grants struct {
	mu      sync.Mutex
	byToken map[int64]string
}

func newGrants() *grants { return &grants{byToken: make(map[int64]string)} }

func (g *grants) add(token int64, place string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.byToken[token] = place
}

func (g *grants) remove(token int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.byToken, token)
}

// findOfOtherSession finds a lease that another session was granted. Its place may be somebody
// else's now: then the token is another one.
func (s *session) findOfOtherSession(ctx context.Context, id driver.ID, ref string, token int64) (*claim, error) {
	n := namesOf(id)
	read, ok := n.byRef(id, ref)
	if !ok {
		return nil, driver.ErrNotHeld
	}
	r, err := s.commit(ctx, nil, []clientv3.Op{read}, nil)
	if err != nil {
		return nil, err
	}
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil, driver.ErrNotHeld
	}
	e, err := parseEntry(kvs[0])
	if err != nil {
		return nil, err
	}
	if e.stage == kept || e.create != token {
		return nil, driver.ErrNotHeld
	}
	e.stage = holding // or else there would be no token
	n.place = e.name
	return &claim{
		id: id, names: n, create: e.create, writing: make(chan struct{}, 1),
		leases: []clientv3.LeaseID{e.lease}, place: e.place,
	}, nil
}

// endForeign deletes the place of a lease that another session was granted.
func (s *session) endForeign(ctx context.Context, e *driver.Ending) error {
	cl, err := s.findOfOtherSession(ctx, e.ID, e.Ref, e.Token)
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		return nil
	case err != nil:
		return err
	}
	_, err = s.commit(ctx, nil, []clientv3.Op{cl.names.deleteIfOld(cl.create)}, nil)
	return err
}

// IsOwner returns a comparison for the user's own transactions that is true as long as
// the lease with that fencing token, as core.Lease.Token or TokenOf returns it, is
// held at etcd:
//
//	client.Txn(ctx).If(locks.IsOwner(lease.Token())).Then(clientv3.OpPut("stock/7", "41")).Commit()
//
// What such a transaction writes is written while nobody else holds the key, whatever
// pauses and clocks do: etcd itself decides. The lease must be one of a session of this
// Driver in this process, which has not been released; for any other token the
// comparison is never true.
func (d *Driver) IsOwner(token int64) clientv3.Cmp {
	d.grants.mu.Lock()
	place, ok := d.grants.byToken[token/block]
	d.grants.mu.Unlock()
	if !ok {
		return clientv3.Compare(clientv3.CreateRevision(KeyPrefix), "=", -1)
	}
	return clientv3.Compare(clientv3.CreateRevision(place), "=", token/block)
}

// block is how many fencing tokens the engine makes from one of the driver's: one for each
// caller in the process that gets the lease.
const block = 1024
