package zklock

import (
	"context"
	"errors"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's session with the servers.
type session struct {
	*config
	sink    driver.Sink
	timeout time.Duration // of one attempt
	client  *client
	claims  claims
	bells   bells

	*kit.Life
	debts *kit.Debts[debt]
}

var _ driver.Session = (*session)(nil)

func newSession(c *config, dc driver.Config) *session {
	s := &session{config: c, sink: dc.Sink, timeout: dc.StoreTimeout, Life: kit.NewLife("zookeeper", "the servers")}
	s.client = newClient(c, dc.StoreTimeout, s.Start, s.event)
	s.claims.init(s)
	s.bells.init(s)
	s.debts = kit.NewDebts[debt](s.Life, cleaners)
	return s
}

// by is a method's caller.
func (s *session) by(ctx context.Context) caller { return caller{ctx, s.Closing} }

// itself is the session as a caller, until Close has done its work.
func (s *session) itself() caller { return caller{s.Ctx, s.Ctx.Done()} }

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
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
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
	err := s.Life.Close(ctx, s.debts.Drain, func() { s.client.end(s.claims.stop()) })
	if ctx.Err() != nil {
		s.client.abandon()
	}
	return err
}
