package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
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
	bold         bool        // its node says that it is granted, though it may wait
	told         bool        // the holders were told of it when it came
	alone        *written    // the write that has granted it the lease already; nil if none has
	capacity     int32
	version      int32     // of the node
	acked        time.Time // when the last answered write to the node was sent
	predecessors map[string]*predecessor
	keyVersion   int32 // the version of the key's node, when the line was last read
	waiters      int   // how many waited then, behind this place
	ahead        int   // how many waited then, before this place
	nextInLine   bool  // then this place was right behind the holders
	reported     bool  // the sink was told that the request waits
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
		err = req.createNode(c)
	}
	if err == nil && req.alone != nil {
		g, err = req.hold(*req.alone)
	} else if err == nil {
		var unread bool
		if unread, err = req.awaitTurn(c); err == nil {
			g, err = req.takeLease(c, unread)
		}
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
	req.bold = req.Mode == driver.Exclusive && !req.s.claims.crowded.Was(req.Key)
	for range 4 { // the servers may delete the key's node while it is empty
		req.acked = time.Now()
		req.creation = pendingCall{}
		made, err := req.sendCreate(c, old)
		var name string
		switch {
		case err == nil:
			name = made.path[len(req.parent)+1:]
			if k := made.key; k != nil && k.NumChildren == 1 {
				req.alone = &written{stat: &zk.Stat{Mzxid: k.Mzxid, Mtime: k.Mtime}, sent: req.acked}
				req.keyVersion = k.Version
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
// step. A bold request takes the key for free. It creates the node as a lease, and writes to the
// key's own node in the same step. The answer says how many members there were then: if there was
// no other, the lease is granted, and the number of this write is its token, as all earlier
// leases had ended before. If there was another, its holder has been told by that write that the
// key is contended.
func (req *request) sendCreate(c caller, old string) (created, error) {
	rec := record{ttl: req.placeTTL()}
	if req.bold {
		rec = record{state: granted, ttl: req.TTL}
	}
	create := &zk.CreateRequest{
		Path: req.parent + "/" + memberPrefix(req.Mode, req.Limit, req.Owner),
		Data: []byte(rec.String()), Acl: req.s.acl, Flags: zk.FlagEphemeralSequential,
	}
	ops := []any{create}
	if old != "" {
		ops = append(ops, &zk.DeleteRequest{Path: old, Version: -1})
	}
	if req.bold {
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
		if req.bold {
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

// takeLease turns the place into a lease by a write to its node. The number of that write is
// the token. If the line is unread, it reads meanwhile who waits.
func (req *request) takeLease(c caller, unread bool) (driver.Grant, error) {
	var counting sync.WaitGroup
	if unread {
		counting.Go(func() { req.countWaiters(c) })
	}
	w, err := req.writeGrant(c)
	counting.Wait()
	if err != nil {
		return driver.Grant{}, err
	}
	return req.hold(w)
}

// hold returns the lease that a write to the node has granted.
func (req *request) hold(w written) (driver.Grant, error) {
	l := &lease{
		id: req.ID, parent: req.parent, name: req.name, capacity: req.capacity,
		version: w.stat.Version, token: w.stat.Mzxid, since: w.stat.Mtime,
		endsAtServers: w.sent.Add(req.TTL),
		deadline:      driver.Deadline(w.sent, req.s.client.cappedTTL(req.TTL)),
	}
	g := driver.Grant{ID: l.id, Ref: l.name, Token: l.token, Deadline: l.deadline, Contended: req.waiters > 0}
	if !req.s.claims.addLease(req, l) {
		return driver.Grant{}, driver.ErrPlaceLost
	}
	return g, nil
}

// writeGrant writes to the node that it is granted.
func (req *request) writeGrant(c caller) (written, error) {
	rec := record{state: granted, ttl: req.TTL}
	path := req.parent + "/" + req.name
	for {
		w, err := req.s.set(c, path, rec, req.version)
		if err == zk.ErrBadVersion { // an earlier attempt was executed
			var n node
			if n, err = req.s.get(c, path); err == nil {
				req.version = n.stat.Version
				continue
			}
		}
		switch {
		case err == nil:
			return w, nil
		case err == zk.ErrNoNode:
			return written{}, driver.ErrPlaceLost
		case !req.mayRetry(c, err):
			return written{}, err
		}
	}
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
