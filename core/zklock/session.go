package zklock

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

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

// keyPath returns the path of a key's node.
func (s *session) keyPath(key string) string { return s.root + "/" + keyName(key) }
