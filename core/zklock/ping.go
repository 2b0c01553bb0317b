package zklock

import (
	"context"
	"path"

	"github.com/go-zookeeper/zk"
)

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
