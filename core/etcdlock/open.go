package etcdlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Open starts a session.
func (d *Driver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case d.client == nil:
		return nil, errors.New("open an etcd lock session: the client is nil; pass one made by clientv3.New")
	case c.Sink == nil:
		return nil, errors.New("open an etcd lock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open an etcd lock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	}
	return newSession(d, c), nil
}

func newSession(d *Driver, c driver.Config) *session {
	s := &session{client: d.client, sink: c.Sink, timeout: c.StoreTimeout, identity: c.Identity, Life: kit.NewLife("etcd", "the server")}
	s.claims.init(d.grants)
	s.debts = kit.NewDebts[*debt](s.Life, cleaners)
	return s
}

// Close ends the session. Leases that were granted stay until they expire.
func (s *session) Close(ctx context.Context) error {
	return s.Life.Close(ctx, func(ctx context.Context) bool {
		s.claims.close()
		for _, req := range s.begun.close() {
			s.claims.end(req.ID, notHeld)
			req.giveBack()
		}
		s.revokeSpares()
		return s.debts.Drain(ctx)
	}, nil)
}
