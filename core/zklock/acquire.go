package zklock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	req := &request{
		s: s, Request: r, parent: s.keyPath(r.Key), mark: mark(r.Owner),
		done: make(chan struct{}), changed: kit.NewSignal(), predecessors: make(map[string]*predecessor), begun: time.Now(),
	}
	if err := check(r); err != nil {
		s.claims.recordEnd(r.Owner, notHeld)
		req.endReplaced()
		return driver.Grant{}, err
	}
	for {
		other, g, err := s.claims.begin(req)
		switch {
		case err != nil:
			req.endReplaced()
			return driver.Grant{}, err
		case g != nil:
			return *g, nil
		case other == nil:
			return req.run(ctx)
		}
		select {
		case <-other.done:
		case <-ctx.Done():
			return driver.Grant{}, ctx.Err()
		case <-s.Closing:
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// request is one running Acquire. Once its node is created it has a place in the line.
type request struct {
	s *session
	driver.Request
	parent  string // the key's node
	mark    string
	done    chan struct{} // closed when the request has been granted or has failed
	changed kit.Signal

	// Guarded by s.claims.mu.
	name        string // of its node; empty before that is created
	watching    string // the path of the target
	armed       bool   // the servers will send an event when the target changes
	watchedGone bool   // the target was deleted
	nodeLost    bool   // its node is gone: ZooKeeper's session has expired, or the request was refused

	// Of Acquire's goroutine.
	creation     pendingCall // the call that creates the node
	replaced     bool        // the lease to replace has ended
	alone        bool        // the key had no other node when its own was created
	capacity     int32
	token        int64         // the number of the node's creation; 0: not known yet
	created      int64         // when that was, in milliseconds since 1970 by the servers' clock
	asked        time.Time     // when it was asked for
	version      int32         // of the node
	acked        time.Time     // when the last answered write to the node was sent
	lasts        time.Duration // how long the node lasts from then on, at least
	predecessors map[string]*predecessor
	keyVersion   int32 // the version of the key's node, when the line was last read; or unread
	waiters      int   // how many waited then, behind this place
	ahead        int   // how many waited then, before this place
	nextInLine   bool  // then this place was right behind the holders
	second       bool  // then one other was before this place
	first        member
	reported     bool // the sink was told that the request waits
	begun        time.Time
}

// check refuses requests that the driver cannot serve.
func check(r driver.Request) error {
	switch {
	case r.Mode > driver.Semaphore:
		return &driver.PermanentError{Err: fmt.Errorf("zookeeper: mode %d is not offered", r.Mode)}
	case r.Mode == driver.Semaphore && r.Limit < 1:
		return &driver.PermanentError{Err: fmt.Errorf("zookeeper: a semaphore with a limit of %d; at least 1 is needed", r.Limit)}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: fmt.Errorf("zookeeper: a TTL of %v is too short; use at least %v", r.TTL, minTTL)}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("zookeeper: the lease to replace is of another key")}
	}
	return nil
}

// run creates the node, waits for its turn and takes the lease.
func (req *request) run(ctx context.Context) (driver.Grant, error) {
	c := req.s.callerOf(ctx)
	g, err := driver.Grant{}, ctx.Err()
	if err == nil {
		err = req.lookForRoom(c)
	}
	if err == nil {
		err = req.createNode(c)
	}
	if err == nil && !req.alone {
		err = req.awaitTurn(c)
	}
	if err == nil {
		g, err = req.takeLease(c)
	}
	if err != nil {
		req.giveUp()
		if errors.Is(err, zk.ErrSessionExpired) {
			err = driver.ErrPlaceLost
		}
		return driver.Grant{}, callerError(err)
	}
	return g, nil
}

// createNode creates the node. If the reply is lost, it finds the node by the owner's mark in
// its name.
func (req *request) createNode(c caller) error {
	old := req.nodeToReplace(c)
	for range 4 { // the servers may delete the key's node while it is empty
		req.asked = time.Now()
		req.acked, req.lasts = req.asked, req.TTL
		req.creation = pendingCall{}
		made, err := req.sendCreate(c, old)
		var name string
		switch {
		case err == nil:
			name = made.path[len(req.parent)+1:]
			if k := made.key; k != nil {
				req.token, req.created, req.keyVersion, req.alone = k.Mzxid, k.Mtime, k.Version, k.NumChildren == 1
			}
		case err == zk.ErrNoNode && old != "":
			old = "" // the lease to replace has ended
			continue
		case err == zk.ErrNoNode:
			if err := req.s.makeKey(c, req.parent); err != nil && !req.mayRetry(c, err) {
				return err
			}
			continue
		case req.creation.sent && retryAtOnce(c, err):
			m, ok, ferr := req.s.find(c, req.parent, req.mark)
			if ferr != nil {
				return err
			}
			if !ok { // nor will it be created
				continue
			}
			name = m.name
		default:
			return err
		}
		m, ok := parseMember(name)
		if !ok {
			return &driver.PermanentError{Err: errors.New("zookeeper: the numbers of the key's nodes are used up; they begin anew when nobody has held it or waited for it for some minutes")}
		}
		req.s.claims.mu.Lock()
		req.name = name
		req.s.claims.mu.Unlock()
		req.capacity = m.capacity
		req.replaced = old != ""
		req.endReplaced() // unless the create has deleted it in the same step
		return nil
	}
	return errors.New("zookeeper: the key's node went away, or the connection did, as often as it was made")
}

// created is the path of a new node, and the key's node as it was then.
type created struct {
	path string
	key  *zk.Stat // nil if it was not written
}

// sendCreate sends the request that creates the node, and deletes the one to replace in the same
// step. An exclusive request also writes to the key's own node in that step. This tells the holders
// that their key is contended. The answer has the number of the step, which is the token, and says
// how many members there were then: if there was no other, the lease is granted.
func (req *request) sendCreate(c caller, old string) (created, error) {
	create := &zk.CreateRequest{
		Path: req.parent + "/" + memberPrefix(req.Mode, req.Limit, req.Owner),
		Data: []byte(record{ttl: req.lasts}.String()), Acl: req.s.acl, Flags: zk.FlagEphemeralSequential,
	}
	ops := []any{create}
	if old != "" {
		ops = append(ops, &zk.DeleteRequest{Path: old, Version: -1})
	}
	if req.Mode == driver.Exclusive {
		ops = append(ops, &zk.SetDataRequest{Path: req.parent, Version: -1})
	}
	return call(req.s, c, &req.creation, func(conn *zk.Conn) (made created, err error) {
		if len(ops) == 1 {
			made.path, err = conn.Create(create.Path, create.Data, create.Flags, create.Acl)
			return made, err
		}
		res, err := conn.Multi(ops...)
		if err != nil {
			return created{}, err
		}
		made.path = res[0].String
		if req.Mode == driver.Exclusive {
			made.key = res[len(res)-1].Stat
		}
		return made, nil
	})
}

// makeKey creates a key's node. It is a container: the servers delete it when it has been empty
// for about a minute, and check that it is empty in the same step.
func (s *session) makeKey(c caller, parent string) error {
	container := func() error {
		return do(s, c, func(conn *zk.Conn) error {
			_, err := conn.CreateContainer(parent, nil, zk.FlagContainer, s.acl)
			return err
		})
	}
	err := container()
	if err == zk.ErrNoNode {
		if err = s.makeRoot(c); err == nil {
			err = container()
		}
	}
	if err != nil && err.Error() == unimplemented {
		return &driver.PermanentError{Err: errors.New("zookeeper: the servers know no containers; use 3.5.3 or later")}
	}
	return ignore(err, zk.ErrNodeExists)
}

// unimplemented is the client library's text for the answer of a server that does not know a
// kind of request.
const unimplemented = "unknown error: -6"

// makeRoot creates the root, under which the keys have their nodes.
func (s *session) makeRoot(c caller) error {
	for i := 1; i <= len(s.root); i++ {
		if i < len(s.root) && s.root[i] != '/' {
			continue
		}
		err := do(s, c, func(conn *zk.Conn) error {
			_, err := conn.Create(s.root[:i], nil, zk.FlagPersistent, s.acl)
			return err
		})
		if err == zk.ErrNoAuth && i < len(s.root) { // it may exist and be somebody else's
			err = nil
		}
		if err != nil && err != zk.ErrNodeExists {
			return err
		}
	}
	return nil
}

// nodeToReplace ends the lease to replace for this process, and returns the path of its node,
// or "" if there is none.
func (req *request) nodeToReplace(c caller) string {
	old := req.Replace
	if old == nil {
		return ""
	}
	req.s.claims.remove(old.Owner, released)
	if name := nodeNameOf(old); name != "" {
		return req.parent + "/" + name
	}
	if m, ok, err := req.s.find(c, req.parent, mark(old.Owner)); ok && err == nil {
		return req.parent + "/" + m.name
	}
	return ""
}

// takeLease turns a place whose turn has come into a lease. It needs no write. That all before it are
// gone is known from a read or an event of a server that may lag behind, so others may have deleted
// this node by then. But only those do who have seen one version of it for as long as that lasts, and
// they count from after they read it. The lease counts from before that version was written, or an
// earlier one, so it is over first. The same goes for a session that has expired, as an answered
// write is what cappedTTL counts from. If Oust has deleted it, the watch of the key tells.
//
// Where a write would make the lease last much longer, it is written. So it is if the place may be
// shared and others wait: whoever is behind it watches it, and has to look at the line again.
func (req *request) takeLease(c caller) (driver.Grant, error) {
	most := req.s.client.cappedTTL(req.TTL)
	if req.tellsNext() || !req.alone && driver.Remaining(req.acked.Add(min(req.lasts, most)), time.Now()) < most/10*9 {
		rec := record{state: granted, ttl: req.TTL, since: req.grantedAt()}
		for err := req.write(c, rec); err != nil; err = req.write(c, rec) {
			if !req.mayRetry(c, err) {
				return driver.Grant{}, err
			}
		}
	}
	l := &lease{
		id: req.ID, parent: req.parent, name: req.name, capacity: req.capacity,
		version: req.version, token: req.token, since: req.grantedAt(),
		endsAtServers: req.acked.Add(req.lasts),
		deadline:      driver.Deadline(req.acked, min(req.lasts, most)),
	}
	g := driver.Grant{ID: l.id, Ref: l.name, Token: l.token, Deadline: l.deadline, Contended: req.waiters > 0 || req.keyVersion == unread}
	if !req.s.claims.addLease(req, l) {
		return driver.Grant{}, driver.ErrPlaceLost
	}
	return g, nil
}

// tellsNext reports whether the one behind has to be told that this place holds the key.
func (req *request) tellsNext() bool { return req.reported && req.capacity != 1 && req.waiters > 0 }

// grantedAt returns what the servers' clock shows when the lease is granted: when they created the
// node, and how long ago it was asked for.
func (req *request) grantedAt() int64 {
	if req.alone {
		return req.created
	}
	return req.created + time.Since(req.asked).Milliseconds()
}

// write writes a record to the place's node.
func (req *request) write(c caller, rec record) error {
	req.lasts = min(req.lasts, rec.ttl) // it may be executed, and not answered
	for {
		w, err := req.s.set(c, req.parent+"/"+req.name, rec, req.version)
		switch err {
		case nil:
			req.version, req.acked, req.lasts = w.stat.Version, w.sent, rec.ttl
			return nil
		case zk.ErrNoNode:
			return driver.ErrPlaceLost
		case zk.ErrBadVersion: // an earlier attempt was executed
			if err = req.readOwn(c); err == nil {
				continue
			}
		}
		return err
	}
}

// readOwn reads the place's node.
func (req *request) readOwn(c caller) error {
	n, err := req.s.get(c, req.parent+"/"+req.name)
	if err == zk.ErrNoNode {
		return driver.ErrPlaceLost
	}
	if err == nil {
		req.token, req.created, req.version = n.stat.Czxid, n.stat.Ctime, n.stat.Version
	}
	return err
}

// giveUp ends the owner for good, and starts to delete its node.
func (req *request) giveUp() {
	req.s.claims.fail(req)
	if req.creation.sent && !req.knownGone() {
		req.s.owe(debt{parent: req.parent, mark: req.mark, name: req.name, after: req.creation.done})
	}
	req.endReplaced()
}

// knownGone reports whether the node is known to be gone.
func (req *request) knownGone() bool {
	req.s.claims.mu.Lock()
	defer req.s.claims.mu.Unlock()
	return req.nodeLost
}

// endReplaced starts to delete the lease to replace, unless that is done.
func (req *request) endReplaced() {
	if old := req.Replace; old != nil && !req.replaced {
		req.replaced = true
		req.s.claims.remove(old.Owner, released)
		req.s.owe(debt{parent: req.s.keyPath(old.Key), mark: mark(old.Owner), name: nodeNameOf(old), after: req.creation.done})
	}
}

// nodeNameOf returns the name of a lease's node, or "" if its Ref is none.
func nodeNameOf(e *driver.Ending) string {
	if m, ok := parseMember(e.Ref); ok && m.mark == mark(e.Owner) {
		return m.name
	}
	return ""
}
