package zklock

import (
	"context"
	"errors"
	"path"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// session is one engine's session with the servers.
type session struct {
	*config
	sink    driver.Sink
	timeout time.Duration // of one attempt
	client  *client
	claims  claims
	bells   bells
	cleaner cleaner

	ctx     context.Context // ends when Close has done its work
	cancel  context.CancelFunc
	closing chan struct{} // closed when Close begins

	mu      sync.Mutex
	closed  bool           // no method is entered any more
	over    bool           // no goroutine is started any more
	running sync.WaitGroup // calls of the session's methods
	workers sync.WaitGroup // goroutines
}

var _ driver.Session = (*session)(nil)

func newSession(c *config, dc driver.Config) *session {
	s := &session{config: c, sink: dc.Sink, timeout: dc.StoreTimeout, closing: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.client = newClient(c, dc.StoreTimeout, s.start, s.event)
	s.claims.init(s)
	s.bells.init(s)
	s.cleaner.s = s
	return s
}

// enter begins a method's call, which ends with s.running.Done.
func (s *session) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return driver.ErrClosed
	}
	s.running.Add(1)
	return nil
}

// start runs f as a goroutine of the session, unless that has ended.
func (s *session) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.workers.Go(f)
	return true
}

// by is a method's caller.
func (s *session) by(ctx context.Context) caller { return caller{ctx, s.closing} }

// itself is the session as a caller, until Close has done its work.
func (s *session) itself() caller { return caller{s.ctx, s.ctx.Done()} }

// keyPath is the node of a key.
func (s *session) keyPath(key string) string { return s.root + "/" + keyName(key) }

// event takes the client library's events, on goroutines that must not be held up.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.bells.clear()
		s.claims.expire()
	case e.Path != "":
		s.claims.changed(e.Path, e.Type == zk.EventNodeDeleted)
		s.bells.rung(e.Path)
	}
}

// Ping reports whether the servers answer and permit what the driver needs: a node
// is made and deleted in one step, so that nobody sees it. As long as the root is not
// there it stands in for that node.
func (s *session) Ping(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.running.Done()
	c := s.by(ctx)
	err := s.probe(c)
	if again(c, err) {
		err = s.probe(c)
	}
	return soften(err)
}

func (s *session) probe(c caller) error {
	for probe := s.root + "/ping"; ; probe = path.Dir(probe) {
		err := do(s, c, func(conn *zk.Conn) error {
			_, err := conn.Multi(
				&zk.CreateRequest{Path: probe, Acl: s.acl},
				&zk.SetDataRequest{Path: probe, Version: -1},
				&zk.DeleteRequest{Path: probe, Version: -1})
			return err
		})
		if err != zk.ErrNoNode || probe == "/" {
			return ignore(err, zk.ErrNodeExists) // somebody has just made it
		}
	}
}

// makeRoot makes the node under which the keys have theirs.
func (s *session) makeRoot(c caller) error {
	for i := 1; i <= len(s.root); i++ {
		if i < len(s.root) && s.root[i] != '/' {
			continue
		}
		err := do(s, c, func(conn *zk.Conn) error {
			_, err := conn.Create(s.root[:i], nil, zk.FlagPersistent, s.acl)
			return err
		})
		if err == zk.ErrNoAuth && i < len(s.root) { // it may be there, and somebody else's
			err = nil
		}
		if err != nil && err != zk.ErrNodeExists {
			return err
		}
	}
	return nil
}

// makeKey makes a key's node. It is a container: the servers delete it when nothing
// has been in it for about a minute, and in one step with the check that nothing is.
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

// unimplemented is how the client library puts the answer of a server that does not
// know a kind of request.
const unimplemented = "unknown error: -6"

// Close ends the session. Without leases ZooKeeper's session is closed; with some it
// is left to expire, so that they last until their TTL or its time-out is over.
func (s *session) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()

	done := make(chan struct{})
	drained := false // once done
	go func() {
		defer close(done)
		s.running.Wait()
		drained = s.cleaner.drain(ctx)
		s.cancel()
		s.client.end(s.claims.stop())
		s.mu.Lock()
		s.over = true
		s.mu.Unlock()
		s.workers.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.cancel()
		s.client.abandon()
	}
	select {
	case <-done:
		if drained {
			return nil
		}
		return errors.Join(errors.New("zookeeper: session closed before the servers had confirmed the end of all leases"), ctx.Err())
	default:
		return errors.Join(errors.New("zookeeper: session closed with work left"), ctx.Err())
	}
}
