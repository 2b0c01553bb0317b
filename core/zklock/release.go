package zklock

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// Release ends leases.
func (s *session) Release(ctx context.Context, es []driver.Ending) []error {
	out := make([]error, len(es))
	if err := s.Enter(); err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer s.Leave()
	now := time.Now()
	each(len(es), func(i int) { out[i] = callerError(s.release(s.callerOf(ctx), es[i], now)) })
	return out
}

// release ends one lease. The client library sends a request only once. So if the node is gone,
// somebody else has deleted it, unless an earlier release has had no answer.
func (s *session) release(c caller, e driver.Ending, now time.Time) error {
	l, repeated := s.claims.beginRelease(e, now)
	owed := repeated != 0
	switch repeated {
	case released:
		return nil
	case notHeld:
		return driver.ErrNotHeld
	}
	parent := s.keyPath(e.Key)
	var name string
	var err error
	if l != nil {
		name = l.name
	} else if name, err = s.locate(c, parent, e.Ref, e.Owner); err == nil && name == "" {
		err = zk.ErrNoNode
	}
	if err == nil {
		err = s.remove(c, parent+"/"+name)
		if retryAtOnce(c, err) {
			_, repeated = s.claims.beginRelease(e, now)
			err = s.remove(c, parent+"/"+name)
		}
	}
	switch {
	case err == nil, err == zk.ErrNoNode && repeated == releasing:
		s.claims.recordEnd(e.Owner, released)
		return nil
	case err == zk.ErrNoNode, err == zk.ErrSessionExpired && l != nil:
		s.claims.recordEnd(e.Owner, notHeld)
		return driver.ErrNotHeld
	}
	if !owed {
		s.owe(debt{parent: parent, mark: mark(e.Owner), name: name})
	}
	return err
}
