package zklock

import (
	"context"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// session is one engine's session with the servers.
type session struct {
	*config
	sink       driver.Sink
	timeout    time.Duration // of one attempt
	client     *client
	claims     claims
	keyWatches keyWatches

	*kit.Life
	debts *kit.Debts[debt]
}

var _ driver.Session = (*session)(nil)

func newSession(c *config, dc driver.Config) *session {
	s := &session{config: c, sink: dc.Sink, timeout: dc.StoreTimeout, Life: kit.NewLife("zookeeper", "the servers")}
	s.client = newClient(c, dc.StoreTimeout, s.Start, s.event)
	s.claims.init(s)
	s.keyWatches.init(s)
	s.debts = kit.NewDebts[debt](s.Life, cleaners)
	return s
}

// Close ends the session. Without leases ZooKeeper's session is closed; with some it
// is left to expire, so that they last until their TTL or its time-out is over.
func (s *session) Close(ctx context.Context) error {
	err := s.Life.Close(ctx, s.debts.Drain, func() { s.client.end(s.claims.stopTimers()) })
	if ctx.Err() != nil {
		s.client.abandon()
	}
	return err
}

// Ping reports whether the servers answer and permit what the driver needs. It creates and
// deletes a node in one step, so that nobody sees it. If the root does not exist, it does that
// with the root.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	c := s.callerOf(ctx)
	err := s.probe(c)
	if retryAtOnce(c, err) {
		err = s.probe(c)
	}
	return callerError(err)
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
			return ignore(err, zk.ErrNodeExists) // somebody has just created it
		}
	}
}

// event handles the client library's events. It must not block the library's goroutines.
func (s *session) event(e zk.Event) {
	switch {
	case e.Type == zk.EventSession && e.State == zk.StateExpired:
		s.keyWatches.clear()
		s.claims.expire()
	case e.Path != "":
		s.claims.changed(e.Path, e.Type == zk.EventNodeDeleted)
		s.keyWatches.nodeChanged(e.Path)
	}
}

// callerOf returns the caller of a method.
func (s *session) callerOf(ctx context.Context) caller { return caller{ctx, s.Closing} }

// ownCaller returns the session itself as a caller, until Close is done.
func (s *session) ownCaller() caller { return caller{s.Ctx, s.Ctx.Done()} }

// keyPath returns the path of a key's node.
func (s *session) keyPath(key string) string { return s.root + "/" + keyName(key) }
