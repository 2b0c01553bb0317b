package zklock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// caller is who makes calls, and when they must end.
type caller struct {
	ctx     context.Context
	closing <-chan struct{} // closed when calls are to end with ErrClosed
}

// written is the result of a write, and when it was sent.
type written struct {
	stat *zk.Stat
	sent time.Time
}

// callerOf returns the caller of a method.
func (s *session) callerOf(ctx context.Context) caller { return caller{ctx, s.Closing} }

// ownCaller returns the session itself as a caller, until Close is done.
func (s *session) ownCaller() caller { return caller{s.Ctx, s.Ctx.Done()} }

// retryAtOnce reports whether to repeat a request at once, on the next connection, as this one
// was lost. The request may be executed twice.
func retryAtOnce(c caller, err error) bool {
	return lostReply(err) && !errors.As(err, new(*kit.SilenceError)) && c.ctx.Err() == nil
}

// each calls f for 0 to n-1 concurrently, and waits for all. The client library pipelines the
// requests.
func each(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
}

// locate returns the name of an owner's node, or "" if there is none.
func (s *session) locate(c caller, parent, ref string, o driver.Owner) (string, error) {
	if m, ok := parseMember(ref); ok && m.mark == mark(o) {
		return m.name, nil
	}
	m, ok, err := s.find(c, parent, mark(o))
	if err != nil || !ok {
		return "", err
	}
	return m.name, nil
}

// find finds an owner's node after a reply was lost. Requests of an old connection are never
// executed after those of the next one, so a node that it does not find will not come.
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

// catchUp brings the connected server up to date with all writes that were acknowledged to
// anybody before. It is a write that changes nothing. ZooKeeper's own sync would not do: on
// the leader it does nothing, and the leader may not have applied a write yet that a follower
// has applied and acknowledged.
func (s *session) catchUp(c caller, path string) error {
	err := do(s, c, func(conn *zk.Conn) error {
		_, err := conn.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
		return err
	})
	return ignore(err, zk.ErrNoNode)
}

// members is the line of a key, and the version of the key's own node.
type members struct {
	line
	version int32
}

// list reads the line of a key.
func (s *session) list(c caller, parent string) (members, error) {
	return call(s, c, nil, func(conn *zk.Conn) (members, error) {
		names, stat, err := conn.Children(parent)
		if err != nil {
			return members{}, err
		}
		return members{parseLine(names), stat.Version}, nil
	})
}

// node is the result of reading a node.
type node struct {
	data []byte
	stat *zk.Stat
}

// get reads a node.
func (s *session) get(c caller, path string) (node, error) {
	return call(s, c, nil, func(conn *zk.Conn) (node, error) {
		data, stat, err := conn.Get(path)
		return node{data, stat}, err
	})
}

// getW is get, and watches the node's next change.
func (s *session) getW(c caller, path string) (node, error) {
	return call(s, c, nil, func(conn *zk.Conn) (node, error) {
		data, stat, _, err := conn.GetW(path)
		return node{data, stat}, err
	})
}

// set writes a record to a node that has that version.
func (s *session) set(c caller, path string, r record, version int32) (written, error) {
	return call(s, c, nil, func(conn *zk.Conn) (written, error) {
		sent := time.Now()
		stat, err := conn.Set(path, []byte(r.String()), version)
		return written{stat, sent}, err
	})
}

// remove deletes a node.
func (s *session) remove(c caller, path string) error {
	return do(s, c, func(conn *zk.Conn) error { return conn.Delete(path, -1) })
}

// do is call for an f without a result.
func do(s *session, c caller, f func(*zk.Conn) error) error {
	_, err := call(s, c, nil, func(conn *zk.Conn) (struct{}, error) { return struct{}{}, f(conn) })
	return err
}

// call runs f, a call of the client library, on a goroutine of the session, as the library
// knows no context. call returns when the time of one attempt is over, or earlier if the
// caller's context ends. f may still run then: pending, if not nil, tells when it ends.
func call[T any](s *session, c caller, pending *pendingCall, f func(*zk.Conn) (T, error)) (T, error) {
	var none T
	limit := time.NewTimer(s.timeout)
	defer limit.Stop()
	conn, l, err := s.client.ready(c.ctx, c.closing, limit.C)
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
	if pending != nil {
		pending.sent, pending.done = true, done
	}
	select {
	case a := <-answers:
		return a.v, s.client.because(a.err)
	case <-c.ctx.Done():
		err = c.ctx.Err()
		time.AfterFunc(time.Until(sent.Add(s.timeout)), func() { s.client.leave(l, sent) })
	case <-limit.C:
		err = silenceError(s.timeout)
		s.client.leave(l, sent)
	case <-c.closing:
		err = driver.ErrClosed
	}
	if !taken.CompareAndSwap(false, true) {
		a := <-answers // the answer has just come
		return a.v, s.client.because(a.err)
	}
	return none, err
}

// pendingCall is a call that its caller may have given up.
type pendingCall struct {
	sent bool          // it was handed to the client library
	done chan struct{} // closed when the library has returned; nil if not sent
}

// silenceError is the error of an attempt that got no answer in time.
func silenceError(after time.Duration) error {
	return &kit.SilenceError{Store: "zookeeper", After: after}
}

// callerError is classify, but returns the errors of the driver contract unchanged.
func callerError(err error) error {
	held := new(driver.HeldError)
	if errors.As(err, &held) || errors.Is(err, driver.ErrPlaceLost) || errors.Is(err, driver.ErrNotHeld) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return classify(err)
}

// permanent are the errors that stay until somebody changes the servers or the options.
var permanent = []error{
	zk.ErrNoAuth, zk.ErrAuthFailed, zk.ErrInvalidACL, zk.ErrBadArguments, zk.ErrInvalidPath, zk.ErrAPIError,
	zk.ErrNoChildrenForEphemerals,
}

// classify wraps an error of the client library. It returns a *driver.PermanentError if a
// retry is useless.
func classify(err error) error {
	if kit.Final(err) || errors.As(err, new(*kit.SilenceError)) {
		return err
	}
	wrapped := fmt.Errorf("zookeeper: %w", err)
	for _, p := range permanent {
		if errors.Is(err, p) {
			return &driver.PermanentError{Err: wrapped}
		}
	}
	return wrapped
}

// lostReply reports whether a request with this error may have been executed.
func lostReply(err error) bool {
	return errors.Is(err, zk.ErrConnectionClosed) || errors.Is(err, zk.ErrClosing) ||
		errors.Is(err, zk.ErrSessionMoved) || errors.Is(err, zk.ErrNoServer) || isNet(err)
}

// isNet reports whether the error is one of a connection, or a kit.SilenceError.
func isNet(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t)
}

// ignore returns nil for errors that are expected.
func ignore(err error, expected ...error) error {
	for _, e := range expected {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
