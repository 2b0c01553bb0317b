package zklock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// caller is on whose behalf the servers are asked.
type caller struct {
	ctx  context.Context
	stop <-chan struct{} // closed when calls are to end with ErrClosed
}

// sending is a request that its caller may have given up.
type sending struct {
	begun bool          // it was handed to the client library
	done  chan struct{} // closed when the library has returned; nil if not begun
}

// ask runs a call of the client library, which knows no context, on a goroutine of
// the session, for one attempt's time and no longer than the caller's context. f may
// still run when ask has returned; how, if not nil, then tells when it ends.
func ask[T any](s *session, c caller, how *sending, f func(*zk.Conn) (T, error)) (T, error) {
	var none T
	limit := time.NewTimer(s.timeout)
	defer limit.Stop()
	conn, l, err := s.client.ready(c.ctx, c.stop, limit.C)
	if err != nil {
		return none, err
	}
	type answer struct {
		v   T
		err error
	}
	var taken atomic.Bool
	answers := make(chan answer, 1)
	done := make(chan struct{})
	sent := time.Now()
	if !s.Start(func() {
		defer close(done)
		v, err := f(conn)
		if taken.CompareAndSwap(false, true) {
			answers <- answer{v, err}
		}
	}) {
		return none, driver.ErrClosed
	}
	if how != nil {
		how.begun, how.done = true, done
	}
	select {
	case a := <-answers:
		return a.v, a.err
	case <-c.ctx.Done():
		err = c.ctx.Err()
	case <-limit.C:
		err = silence(s.timeout)
		if l.silentSince(sent) {
			s.client.cut(l) // another server may answer
		}
	case <-c.stop:
		err = driver.ErrClosed
	}
	if !taken.CompareAndSwap(false, true) {
		a := <-answers // it has just come
		return a.v, a.err
	}
	return none, err
}

// do is ask for what has no result.
func do(s *session, c caller, f func(*zk.Conn) error) error {
	_, err := ask(s, c, nil, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, f(conn) })
	return err
}

// node is what a read of a node returns.
type node struct {
	data []byte
	stat *zk.Stat
}

func (s *session) get(c caller, path string) (node, error) {
	return ask(s, c, nil, func(conn *zk.Conn) (node, error) {
		data, stat, err := conn.Get(path)
		return node{data, stat}, err
	})
}

// getW is get, and has the session told when the node changes next.
func (s *session) getW(c caller, path string) (node, error) {
	return ask(s, c, nil, func(conn *zk.Conn) (node, error) {
		data, stat, _, err := conn.GetW(path)
		return node{data, stat}, err
	})
}

// written is the result of a write, and when it was sent at the earliest.
type written struct {
	stat *zk.Stat
	sent time.Time
}

func (s *session) set(c caller, path string, r record, version int32) (written, error) {
	return ask(s, c, nil, func(conn *zk.Conn) (written, error) {
		sent := time.Now()
		stat, err := conn.Set(path, []byte(r.String()), version)
		return written{stat, sent}, err
	})
}

func (s *session) remove(c caller, path string) error {
	return do(s, c, func(conn *zk.Conn) error { return conn.Delete(path, -1) })
}

// members is the line of a key, and the version of the key's own node.
type members struct {
	line
	version int32
}

func (s *session) list(c caller, parent string) (members, error) {
	return ask(s, c, nil, func(conn *zk.Conn) (members, error) {
		names, stat, err := conn.Children(parent)
		if err != nil {
			return members{}, err
		}
		return members{parseLine(names), stat.Version}, nil
	})
}

// catchUp has the server that is asked apply what was acknowledged to anybody before. It
// is a write that changes nothing: ZooKeeper's own sync does nothing on the leader,
// which may not have applied yet what a follower has applied and acknowledged.
func (s *session) catchUp(c caller, path string) error {
	err := do(s, c, func(conn *zk.Conn) error {
		_, err := conn.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
		return err
	})
	return ignore(err, zk.ErrNoNode)
}

// find looks for an owner's node after a reply was lost. Requests of a connection
// that is over are not executed after those of the next one, so that what it does
// not find will not come.
func (s *session) find(c caller, parent, mark string) (m member, ok bool, err error) {
	if err := s.catchUp(c, parent); err != nil {
		return member{}, false, err
	}
	all, err := s.list(c, parent)
	if err == zk.ErrNoNode {
		return member{}, false, nil
	}
	if err != nil {
		return member{}, false, err
	}
	m, ok = all.marked(mark)
	return m, ok, nil
}
