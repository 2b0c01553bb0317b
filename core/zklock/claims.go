package zklock

import (
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// claims are a session's owners, from their first request until some time after their end.
type claims struct {
	s  *session
	mu sync.Mutex

	requests map[driver.Owner]*request
	leases   map[driver.Owner]*lease
	ended    *kit.Recent[driver.Owner, endReason]

	watched map[string]map[*request]struct{} // by the path of their target

	full *kit.Crowded // keys for which as many waited as might, when the session last asked
}

// lease is a lease that the session holds. Its fields are guarded by claims.mu.
type lease struct {
	id            driver.ID
	parent        string
	name          string
	capacity      int32
	version       int32 // of its node, as last known
	token         int64
	since         int64     // in milliseconds since 1970 by the servers' clock
	lowered       bool      // a renewal was sent that lowers it
	endsAtServers time.Time // by this process's clock
	deadline      time.Time // the latest deadline that a caller was given
	timer         *time.Timer
}

// endReason is how an owner ended, or that its end is under way.
type endReason uint8

const (
	released  endReason = iota + 1 // by a release or a replacement
	releasing                      // by a release, sent in time and not answered yet
	notHeld                        // otherwise: expired, withdrawn, taken away, lost
)

// minEnded is how many ended owners a session remembers at least.
const minEnded = 4096

func (c *claims) init(s *session) {
	c.s = s
	c.requests = make(map[driver.Owner]*request)
	c.leases = make(map[driver.Owner]*lease)
	c.ended = kit.NewRecent[driver.Owner, endReason](minEnded)
	c.watched = make(map[string]map[*request]struct{})
	c.full = kit.NewCrowded()
}

// begin begins the request of an owner. If the owner has made a request before, it returns that
// one while it runs, or its grant, or driver.ErrPlaceLost.
func (c *claims) begin(req *request) (other *request, g *driver.Grant, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.leases[req.Owner]; l != nil {
		return nil, &driver.Grant{ID: l.id, Ref: l.name, Token: l.token, Deadline: l.deadline}, nil
	}
	if other := c.requests[req.Owner]; other != nil {
		return other, nil, nil
	}
	if c.ended.Get(req.Owner) != 0 {
		return nil, nil, driver.ErrPlaceLost
	}
	c.requests[req.Owner] = req
	return nil, nil, nil
}

// fail ends a request that has failed.
func (c *claims) fail(req *request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch(req)
	delete(c.requests, req.Owner)
	c.ended.Put(req.Owner, notHeld)
	close(req.done)
}

// addLease turns a request into a lease, unless ZooKeeper's session has expired.
func (c *claims) addLease(req *request, l *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if req.nodeLost {
		return false
	}
	c.unwatch(req)
	delete(c.requests, req.Owner)
	c.leases[req.Owner] = l
	l.timer = time.AfterFunc(time.Until(l.endsAtServers), func() { c.ttlOver(l) })
	c.s.keyWatches.add(l, news{req.keyVersion, req.waiters > 0 || req.keyVersion == unread})
	close(req.done)
	return true
}

// lease returns the lease of an owner.
func (c *claims) lease(o driver.Owner) (*lease, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.leases[o]
	return l, ok
}

// nextRenewal returns the record to write for a renewal, which never shortens a lease. Once a
// renewal has lowered a lease it stays lowered, even if that renewal got no answer: it may have
// been executed, and others may hold the key too.
func (c *claims) nextRenewal(l *lease, r driver.Renewal) (rec record, version int32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id.Owner] != l {
		return record{}, 0, false
	}
	l.lowered = l.lowered || r.Share && l.capacity == 1
	rec = record{state: granted, ttl: max(r.TTL, time.Until(l.endsAtServers)), since: l.since}
	if l.lowered {
		rec.state = lowered
	}
	return rec, l.version, true
}

// noteVersion notes the version of a lease's node.
func (c *claims) noteVersion(l *lease, version int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.version = max(l.version, version)
}

// renewed notes a renewal, and reports whether the session still holds the lease.
func (c *claims) renewed(l *lease, w written, ttl time.Duration, deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id.Owner] != l {
		return false
	}
	l.version = max(l.version, w.stat.Version)
	l.endsAtServers = driver.Later(l.endsAtServers, w.sent.Add(ttl))
	l.deadline = driver.Later(l.deadline, deadline)
	return true
}

func (c *claims) isLowered(l *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.lowered
}

// beginRelease begins a release. From here on this process no longer holds the lease, whatever
// the outcome. It returns the lease, if the session has it, or how the owner has ended before;
// 0 if that is not known.
func (c *claims) beginRelease(e driver.Ending, now time.Time) (l *lease, repeated endReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l = c.leases[e.Owner]; l != nil {
		reason := notHeld
		if driver.Remaining(driver.Later(e.Deadline, l.deadline), now) > 0 {
			reason = releasing
		}
		c.removeLocked(l, reason)
		return l, 0
	}
	reason := c.ended.Get(e.Owner)
	if reason == 0 && driver.Remaining(e.Deadline, now) > 0 {
		c.ended.Put(e.Owner, releasing)
	}
	return nil, reason
}

// remove ends a lease of the session, and returns it; nil if there is none.
func (c *claims) remove(o driver.Owner, reason endReason) *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.leases[o]
	if l != nil {
		c.removeLocked(l, reason)
	}
	return l
}

// ttlOver ends a lease whose TTL is over. Its node must be deleted, as it would last as long as
// ZooKeeper's session.
func (c *claims) ttlOver(l *lease) {
	c.mu.Lock()
	if c.leases[l.id.Owner] != l {
		c.mu.Unlock()
		return
	}
	if left := time.Until(l.endsAtServers); left > 0 {
		l.timer.Reset(left)
		c.mu.Unlock()
		return
	}
	c.removeLocked(l, notHeld)
	c.mu.Unlock()
	c.s.owe(debt{parent: l.parent, mark: mark(l.id.Owner), name: l.name})
	c.s.sink.Lost(l.id, errExpired)
}

var (
	errExpired = errors.New("zookeeper: the lease was not renewed in time")
	errGone    = errors.New("zookeeper: somebody else has ended the lease")
	errSession = errors.New("zookeeper: the servers' session has expired")
)

// lose ends a lease that is gone at the servers, and reports whether the session still held it.
func (c *claims) lose(l *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id.Owner] != l {
		return false
	}
	c.removeLocked(l, notHeld)
	return true
}

// expire ends all leases and requests: ZooKeeper's session has expired, with all its nodes.
func (c *claims) expire() {
	c.mu.Lock()
	var lost []*lease
	for _, l := range c.leases {
		c.removeLocked(l, notHeld)
		lost = append(lost, l)
	}
	for _, req := range c.requests {
		if req.name != "" {
			req.nodeLost = true
			req.changed.Set()
		}
	}
	c.mu.Unlock()
	for _, l := range lost {
		c.s.sink.Lost(l.id, errSession)
	}
}

// stopTimers stops the timers of all leases, and reports whether there are leases.
func (c *claims) stopTimers() (held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.leases {
		l.timer.Stop()
	}
	return len(c.leases) > 0
}

// removeLocked removes a lease. c.mu is held.
func (c *claims) removeLocked(l *lease, reason endReason) {
	l.timer.Stop()
	delete(c.leases, l.id.Owner)
	c.ended.Put(l.id.Owner, reason)
	c.s.keyWatches.remove(l)
}

// hasEnded reports whether an owner is known to have ended.
func (c *claims) hasEnded(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ended.Get(o) != 0
}

// recordEnd records how an owner ended.
func (c *claims) recordEnd(o driver.Owner, reason endReason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended.Put(o, reason)
}

// watch makes the node at path the target of a request, in place of the one before.
func (c *claims) watch(req *request, path string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.unwatch(req)
	req.watching, req.armed, req.watchedGone = path, true, false
	if c.watched[path] == nil {
		c.watched[path] = make(map[*request]struct{})
	}
	c.watched[path][req] = struct{}{}
}

// unwatch removes the target of a request. c.mu is held.
func (c *claims) unwatch(req *request) {
	if all := c.watched[req.watching]; all != nil {
		delete(all, req)
		if len(all) == 0 {
			delete(c.watched, req.watching)
		}
	}
	req.watching = ""
}

// changed wakes the requests that watch a node. The servers send one event only, until the node
// is watched again.
func (c *claims) changed(path string, gone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for req := range c.watched[path] {
		req.armed = false
		req.watchedGone = req.watchedGone || gone
		req.changed.Set()
	}
}
