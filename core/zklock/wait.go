package zklock

import (
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// maxPlaceTTL bounds how long a place in the line lasts after its last refresh.
const maxPlaceTTL = 10 * time.Second

// pollInterval is how often a waiter polls its target, in case an event was lost.
const pollInterval = wake * 7 / 10

// awaitTurn waits until the place is among the holders of the key. unread reports that it
// did not have to read the line to find that out.
func (req *request) awaitTurn(c caller) (unread bool, err error) {
	for {
		t, preceding, err := req.readLine(c)
		if err == nil && preceding != nil {
			err = req.stepBack(c)
		}
		switch {
		case err == nil && preceding == nil:
			if !req.reported && req.waiters == 0 {
				req.s.claims.crowded.Note(req.Key, false)
			}
			return false, nil
		case err == nil && (!req.Wait || req.findsFull()):
			return false, req.refuse(c, preceding[0])
		case err == nil:
			if !req.reported {
				req.reported = true
				req.s.sink.Waiting(req.ID)
				if req.nextInLine && !req.told { // otherwise the holders know of a waiter, or will read the line first
					req.s.Start(func() { _ = req.s.tellContended(req.s.ownCaller(), req.parent) }) // if it fails, renewals tell
				}
			}
			var first bool
			if first, err = req.awaitChange(c, t, preceding); first {
				return true, nil
			}
		}
		if err != nil && !req.mayRetry(c, err) {
			return false, err
		}
	}
}

// findsFull reports whether as many wait before a request that has just come as it lets wait.
func (req *request) findsFull() bool {
	return req.Wait && !req.reported && req.MaxWaiting > 0 && req.ahead >= req.MaxWaiting
}

// stepBack is for a request that has others before it. The session's next ones will not take
// the key for free, and the node of this one says from now on that it waits.
func (req *request) stepBack(c caller) error {
	req.s.claims.crowded.Note(req.Key, true)
	if !req.bold {
		return nil
	}
	if req.Wait && !req.findsFull() {
		if err := req.refreshPlace(c); err != nil {
			return err
		}
	}
	req.bold, req.told = false, true
	return nil
}

// readLine reads the line. preceding are the members that the request has to check for signs
// of life while it waits; nil if it is its turn.
func (req *request) readLine(c caller) (t target, preceding []member, err error) {
	all, err := req.s.list(c, req.parent)
	if err == zk.ErrNoNode {
		return t, nil, driver.ErrPlaceLost
	}
	if err != nil {
		return t, nil, err
	}
	i := all.index(req.name)
	if i < 0 {
		return t, nil, driver.ErrPlaceLost
	}
	req.keyVersion = all.version
	n := all.holders(false)
	if most := all.holders(true); n <= i && n < most && i <= most { // or else it is the same for i
		head, err := req.readMember(c, all.line[0].name, false)
		if err != nil && err != zk.ErrNoNode {
			return t, nil, err
		}
		if err == zk.ErrNoNode {
			return req.readLine(c)
		}
		if head.state == lowered {
			n = most
		}
	}
	if i < n {
		req.waiters = len(all.line) - n
		return t, nil, nil
	}
	req.waiters, req.ahead = len(all.line)-1-i, i-n
	t, req.nextInLine = all.target(i, n), i == n
	if req.nextInLine { // nobody else checks the holders
		return t, all.line[:n], nil
	}
	j := all.index(t.name)
	return t, all.line[j : j+1], nil
}

// countWaiters reads who waits behind a place that has just become the first. After an error
// the watch of the key will tell.
func (req *request) countWaiters(c caller) {
	req.keyVersion, req.waiters = -1, 0
	if all, err := req.s.list(c, req.parent); err == nil {
		if i := all.index(req.name); i >= 0 {
			req.keyVersion, req.waiters = all.version, all.line.behind(i, false)
		}
	}
}

// refuse deletes the place of a request that may not wait, and tells the holders that their
// key is contended.
func (req *request) refuse(c caller, first member) error {
	held := &driver.HeldError{Full: req.Wait}
	if head, err := req.readMember(c, first.name, false); err == nil && head.state != waiting {
		held.RetryAfter = head.ttl
	}
	if err := req.s.deleteAndTell(c, req.parent, deletion{req.name, -1}); err == nil || err == zk.ErrNoNode {
		req.s.claims.mu.Lock()
		req.nodeLost = true
		req.s.claims.mu.Unlock()
	}
	return held
}

// awaitChange sleeps until the line has to be read again, and refreshes the place meanwhile.
// first reports that no member is left before the place.
func (req *request) awaitChange(c caller, t target, preceding []member) (first bool, err error) {
	path := req.parent
	if t.name != "" {
		path += "/" + t.name
	}
	req.s.claims.watch(req, path)
	changed, err := req.setWatch(c, t)
	if changed || err != nil {
		return changed && t.sole && req.targetDeleted(), err
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	nextPoll := time.Now().Add(pollInterval)
	for {
		now := time.Now()
		if refresh := req.acked.Add(req.placeTTL() / 3); !now.Before(refresh) {
			if err := req.refreshPlace(c); err != nil {
				return false, err
			}
			continue
		}
		if !now.Before(nextPoll) {
			changed, err := req.poll(c, t, preceding)
			if changed || err != nil {
				return changed && t.sole && req.targetDeleted(), err
			}
			nextPoll = time.Now().Add(pollInterval)
			continue
		}
		timer.Reset(min(nextPoll.Sub(now), req.acked.Add(req.placeTTL()/3).Sub(now)))
		select {
		case <-req.changed:
			changed, err := req.takeEvent(c, t)
			if changed || err != nil {
				return changed && t.sole && req.targetDeleted(), err
			}
		case <-timer.C:
		case <-c.ctx.Done():
			return false, c.ctx.Err()
		case <-c.closing:
			return false, driver.ErrClosed
		}
	}
}

// setWatch watches the target. changed reports that it has already changed.
func (req *request) setWatch(c caller, t target) (changed bool, err error) {
	if t.name != "" {
		return req.checkMember(c, t.name, true)
	}
	names, err := call(req.s, c, nil, func(conn *zk.Conn) (members, error) {
		names, stat, _, err := conn.ChildrenW(req.parent)
		if err != nil {
			return members{}, err
		}
		return members{parseLine(names), stat.Version}, nil
	})
	if err != nil {
		return false, err
	}
	i := names.index(req.name)
	return i < names.holders(true), nil // also if the place is gone
}

// takeEvent handles an event of the target.
func (req *request) takeEvent(c caller, t target) (changed bool, err error) {
	req.s.claims.mu.Lock()
	nodeLost, armed, gone := req.nodeLost, req.armed, req.watchedGone
	req.armed = true
	req.s.claims.mu.Unlock()
	switch {
	case nodeLost:
		return false, driver.ErrPlaceLost
	case gone:
		return true, nil
	case armed:
		return false, nil
	case t.name == "":
		return true, nil
	}
	return req.checkMember(c, t.name, true)
}

// poll reads the target although no event came, and checks the preceding members.
func (req *request) poll(c caller, t target, preceding []member) (changed bool, err error) {
	for _, m := range preceding {
		if changed, err = req.checkMember(c, m.name, false); changed || err != nil {
			return changed, err
		}
	}
	if !req.mayMissRoom(t) {
		return false, nil
	}
	return req.lineChanged(c)
}

// mayMissRoom reports whether room may come without a change of the target: beside a writer that has
// lowered its lease, or if the line moved before the target was read. Another writer lets nobody in
// without a change of its own, and a request that is a writer has to be the first.
func (req *request) mayMissRoom(t target) bool {
	m, _ := parseMember(t.name)
	return req.capacity != 1 && (m.capacity != 1 || req.predecessors[t.name].state == lowered)
}

// lineChanged reads the line, and reports whether the request may hold the key by now.
func (req *request) lineChanged(c caller) (changed bool, err error) {
	all, err := req.s.list(c, req.parent)
	if err != nil {
		return err == zk.ErrNoNode, ignore(err, zk.ErrNoNode)
	}
	i := all.index(req.name)
	switch {
	case i < all.holders(false): // also if the place is gone
		return true, nil
	case i >= all.holders(true):
		return false, nil
	}
	head, err := req.s.get(c, req.parent+"/"+all.line[0].name)
	if err != nil {
		return err == zk.ErrNoNode, ignore(err, zk.ErrNoNode)
	}
	rec, err := parseRecord(head.data)
	return rec.state == lowered, err
}

// checkMember reads a member before the place. changed reports that the member is gone, has
// another state, or was deleted here, because it was not refreshed for as long as it lasts.
// That time counts from when this process read the latest version, which is later than when
// the member's own process begins to count.
func (req *request) checkMember(c caller, name string, watch bool) (changed bool, err error) {
	before := req.predecessors[name]
	a, err := req.readMember(c, name, watch)
	if err == zk.ErrNoNode {
		req.s.claims.mu.Lock()
		req.watchedGone = req.watchedGone || req.watching == req.parent+"/"+name
		req.s.claims.mu.Unlock()
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if before != nil && before.state != a.state {
		return true, nil
	}
	if time.Since(a.since) <= a.ttl+driver.Margin(a.ttl) {
		return false, nil
	}
	err = req.s.deleteAndTell(c, req.parent, deletion{name, a.version})
	return true, ignore(err, zk.ErrNoNode, zk.ErrBadVersion)
}

// readMember reads a member's node, and notes what it says.
func (req *request) readMember(c caller, name string, watch bool) (*predecessor, error) {
	read := req.s.get
	if watch {
		read = req.s.getW
	}
	n, err := read(c, req.parent+"/"+name)
	if err != nil {
		if err == zk.ErrNoNode {
			delete(req.predecessors, name)
		}
		return nil, err
	}
	rec, err := parseRecord(n.data)
	if err != nil {
		return nil, &driver.PermanentError{Err: err}
	}
	a := &predecessor{n.stat.Version, rec.state, rec.ttl, time.Now()}
	if b := req.predecessors[name]; b != nil && b.version == a.version {
		a.since = b.since
	}
	req.predecessors[name] = a
	return a, nil
}

// predecessor is what a waiter knows of a member before it.
type predecessor struct {
	version int32
	state   state
	ttl     time.Duration
	since   time.Time // when this version was first read
}

// targetDeleted reports whether the watched node was deleted.
func (req *request) targetDeleted() bool {
	req.s.claims.mu.Lock()
	defer req.s.claims.mu.Unlock()
	return req.watchedGone
}

// refreshPlace writes to the place's node, as a sign of life.
func (req *request) refreshPlace(c caller) error {
	w, err := req.s.set(c, req.parent+"/"+req.name, record{ttl: req.placeTTL()}, req.version)
	switch {
	case err == nil:
		req.version, req.acked = w.stat.Version, w.sent
	case err == zk.ErrNoNode:
		return driver.ErrPlaceLost
	case err == zk.ErrBadVersion: // an earlier attempt was executed
		n, err := req.s.get(c, req.parent+"/"+req.name)
		if err == zk.ErrNoNode {
			return driver.ErrPlaceLost
		}
		if err != nil {
			return err
		}
		req.version = n.stat.Version
	default:
		return err
	}
	return nil
}

// placeTTL returns how long the place lasts after each refresh.
func (req *request) placeTTL() time.Duration { return min(req.TTL, maxPlaceTTL) }

// placeDeadline returns when the place ends, unless it is refreshed before.
func (req *request) placeDeadline() time.Time { return driver.Deadline(req.acked, req.placeTTL()) }

// mayRetry reports whether to retry after an error, and pauses before it does. A request may
// retry for the time of one attempt, and while it waits for as long as its place lasts.
func (req *request) mayRetry(c caller, err error) bool {
	if !lostReply(err) {
		return false
	}
	patience := req.begun.Add(req.s.timeout)
	if req.reported {
		patience = driver.Later(patience, req.placeDeadline())
	}
	return time.Now().Before(patience) && c.ctx.Err() == nil && kit.Sleep(c.ctx, firstPause)
}
