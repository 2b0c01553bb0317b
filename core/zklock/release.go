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
	each(len(es), func(i int) { out[i] = soften(s.release(s.by(ctx), es[i], now)) })
	return out
}

// release ends one lease. The client library sends a request once, so that a node
// which is not there was ended by others, unless an earlier release has had no answer.
func (s *session) release(c caller, e driver.Ending, now time.Time) error {
	l, repeated := s.claims.releasing(e, now)
	owed := repeated != 0
	switch repeated {
	case released:
		return nil
	case over:
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
		if again(c, err) {
			_, repeated = s.claims.releasing(e, now)
			err = s.remove(c, parent+"/"+name)
		}
	}
	switch {
	case err == nil, err == zk.ErrNoNode && repeated == releasing:
		s.claims.end(e.Owner, released)
		return nil
	case err == zk.ErrNoNode, err == zk.ErrSessionExpired && l != nil:
		s.claims.end(e.Owner, over)
		return driver.ErrNotHeld
	}
	if !owed {
		s.owe(debt{parent: parent, mark: mark(e.Owner), name: name, ttl: max(time.Until(e.Deadline), 0)})
	}
	return err
}

// releasing begins a release: the owner is over for this process whatever becomes of
// it. It returns the session's lease, if it has it, and how an earlier release ended
// or that it has had no answer; 0 if there was none.
func (c *claims) releasing(e driver.Ending, now time.Time) (l *lease, repeated how) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l = c.leases[e.Owner]; l != nil {
		h := over
		if driver.Remaining(driver.Later(e.Deadline, l.believe), now) > 0 {
			h = releasing
		}
		c.drop(l, h)
		return l, 0
	}
	h := c.how(e.Owner)
	if h == 0 && driver.Remaining(e.Deadline, now) > 0 {
		c.note(e.Owner, releasing)
	}
	return nil, h
}

// takeBack ends a lease of the session and returns it, nil if there is none.
func (c *claims) takeBack(o driver.Owner, h how) *lease {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.leases[o]
	if l != nil {
		c.drop(l, h)
	}
	return l
}
