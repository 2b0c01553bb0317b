package zklock

import (
	"cmp"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// maxPlaceTTL bounds how long a place in the line lasts after its last refresh.
const maxPlaceTTL = 10 * time.Second

// pollInterval is how often a waiter polls its target, in case an event was lost.
const pollInterval = wake * 7 / 10

// awaitTurn waits until the place is among the holders of the key.
func (req *request) awaitTurn(c caller) error {
	for {
		target, preceding, err := req.look(c)
		switch {
		case err == nil && preceding == nil:
			return nil
		case err == nil && (!req.Wait || req.findsFull()):
			req.s.claims.full.Note(req.Key, req.Wait)
			return req.refuse(c)
		case err == nil:
			if !req.reported {
				req.reported = true
				req.s.sink.Waiting(req.ID)
				if req.nextInLine && req.Mode != driver.Exclusive { // otherwise the holders know of a waiter, or will read the line first
					req.s.Start(func() { _ = req.s.tellContended(req.s.ownCaller(), req.parent) }) // if it fails, renewals tell
				}
			}
			err = req.awaitChange(c, target, preceding)
			if err == nil && req.second && req.capacity == 1 && req.targetDeleted() {
				req.keyVersion = unread
				return nil // nobody comes before it any more
			}
		}
		if err != nil && !req.mayRetry(c, err) {
			return err
		}
	}
}

// look reads the line, and at the same time the place's own node if its token is not known yet.
func (req *request) look(c caller) (target string, preceding []member, err error) {
	var own sync.WaitGroup
	var unread error
	if req.token == 0 {
		own.Go(func() { unread = req.readOwn(c) })
	}
	target, preceding, err = req.readLine(c)
	own.Wait()
	return target, preceding, cmp.Or(err, unread)
}

// bounded reports whether the request has just come and does not wait behind any number.
func (req *request) bounded() bool { return req.Wait && !req.reported && req.MaxWaiting > 0 }

// findsFull reports whether as many wait before a request that has just come as it lets wait.
func (req *request) findsFull() bool { return req.bounded() && req.ahead >= req.MaxWaiting }

// lookForRoom reads the line before a bounded request makes its node, which would count for those who
// come at the same time, though it is refused. It does so if the session found the line full when it last
// asked. It returns the refusal, or nil if there may be room.
func (req *request) lookForRoom(c caller) error {
	full := req.s.claims.full
	if !req.bounded() || req.Replace != nil || !full.Was(req.Key) {
		return nil
	}
	all, err := req.s.list(c, req.parent)
	if err != nil || len(all.line)-all.holders(true) < req.MaxWaiting {
		full.Note(req.Key, false)
		return ignore(err, zk.ErrNoNode)
	}
	held := &driver.HeldError{Full: true}
	if head, err := req.readMember(c, all.line[0].name, false); err == nil {
		held.RetryAfter = head.ttl
	}
	return held
}

// readLine reads the line. preceding are the members that the request has to check for signs
// of life while it waits; nil if it is its turn.
func (req *request) readLine(c caller) (target string, preceding []member, err error) {
	all, err := req.s.list(c, req.parent)
	if err == zk.ErrNoNode {
		return target, nil, driver.ErrPlaceLost
	}
	if err != nil {
		return target, nil, err
	}
	i := all.index(req.name)
	if i < 0 {
		return target, nil, driver.ErrPlaceLost
	}
	req.keyVersion, req.first = all.version, all.line[0]
	n := all.holders(false)
	if most := all.holders(true); n <= i && n < most && (i <= most || req.bounded()) { // or else it is the same for i
		head, err := req.readMember(c, all.line[0].name, false)
		if err != nil && err != zk.ErrNoNode {
			return target, nil, err
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
		return target, nil, nil
	}
	req.waiters, req.ahead = len(all.line)-1-i, i-n
	target, req.nextInLine, req.second = all.target(i, n), i == n, i == 1
	if req.nextInLine { // nobody else checks the holders
		return target, all.line[:n], nil
	}
	j := all.index(target)
	return target, all.line[j : j+1], nil
}

// refuse deletes the place of a request that may not wait, and tells the holders that their
// key is contended, unless they were told when it came.
func (req *request) refuse(c caller) error {
	held := &driver.HeldError{Full: req.Wait}
	if head, err := req.readMember(c, req.first.name, false); err == nil {
		held.RetryAfter = head.ttl
	}
	var err error
	if req.Mode == driver.Exclusive {
		err = req.s.remove(c, req.parent+"/"+req.name)
	} else {
		err = req.s.deleteAndTell(c, req.parent, deletion{req.name, -1})
	}
	if err == nil || err == zk.ErrNoNode {
		req.s.claims.mu.Lock()
		req.nodeLost = true
		req.s.claims.mu.Unlock()
	}
	return held
}

// awaitChange sleeps until the line has to be read again, and refreshes the place meanwhile.
func (req *request) awaitChange(c caller, target string, preceding []member) error {
	path := req.parent
	if target != "" {
		path += "/" + target
	}
	req.s.claims.watch(req, path)
	changed, err := req.setWatch(c, target)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	nextPoll := time.Now().Add(pollInterval)
	for !changed && err == nil {
		now, refresh := time.Now(), req.acked.Add(req.placeTTL()/3)
		if !now.Before(refresh) {
			err = req.write(c, record{ttl: req.placeTTL()}) // a sign of life
			continue
		}
		if !now.Before(nextPoll) {
			changed, err = req.poll(c, target, preceding)
			nextPoll = time.Now().Add(pollInterval)
			continue
		}
		timer.Reset(min(nextPoll.Sub(now), refresh.Sub(now)))
		select {
		case <-req.changed:
			changed, err = req.takeEvent(c, target)
		case <-timer.C:
		case <-c.ctx.Done():
			return c.ctx.Err()
		case <-c.closing:
			return driver.ErrClosed
		}
	}
	return err
}

// targetDeleted reports whether an event has said that the watched node was deleted.
func (req *request) targetDeleted() bool {
	req.s.claims.mu.Lock()
	defer req.s.claims.mu.Unlock()
	return req.watchedGone
}

// setWatch watches the target. changed reports that it has already changed.
func (req *request) setWatch(c caller, target string) (changed bool, err error) {
	if target != "" {
		return req.checkMember(c, target, true)
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
func (req *request) takeEvent(c caller, target string) (changed bool, err error) {
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
	case target == "":
		return true, nil
	}
	return req.checkMember(c, target, true)
}

// poll reads the target although no event came, and checks the preceding members.
func (req *request) poll(c caller, target string, preceding []member) (changed bool, err error) {
	for _, m := range preceding {
		if changed, err = req.checkMember(c, m.name, false); changed || err != nil {
			return changed, err
		}
	}
	if !req.mayMissRoom(target) {
		return false, nil
	}
	return req.lineChanged(c)
}

// mayMissRoom reports whether room may come without a change of the target: beside a writer that has
// lowered its lease, or if the line moved before the target was read. Another writer lets nobody in
// without a change of its own, and a request that is a writer has to be the first.
func (req *request) mayMissRoom(target string) bool {
	m, _ := parseMember(target)
	return req.capacity != 1 && (m.capacity != 1 || req.predecessors[target].state == lowered)
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
// another state that lets others in or shows that it was let in itself, or was deleted here, because it was not refreshed for as long as it lasts.
// That time counts from when this process read the latest version, which is later than when
// the member's own process begins to count.
func (req *request) checkMember(c caller, name string, watch bool) (changed bool, err error) {
	before := req.predecessors[name]
	a, err := req.readMember(c, name, watch)
	if err == zk.ErrNoNode {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if m, _ := parseMember(name); before != nil && before.state != a.state && (m.capacity != 1 || a.state == lowered) {
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

// placeTTL returns how long the place lasts after each refresh.
func (req *request) placeTTL() time.Duration { return min(req.TTL, maxPlaceTTL) }

// placeDeadline returns when the place ends at the latest, unless it is refreshed before.
func (req *request) placeDeadline() time.Time {
	return driver.Deadline(req.acked, min(req.lasts, req.placeTTL()))
}

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
