package zklock

import (
	"context"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
)

// each calls f for every index, at the same time: the client library sends them one
// after the other without waiting for answers.
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

// Renew extends leases.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	err := s.Enter()
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer s.Leave()
	each(len(rs), func(i int) {
		var err error
		if out[i], err = s.renew(s.by(ctx), rs[i]); err != nil {
			out[i] = driver.Renewed{Err: soften(err)}
		}
	})
	return out
}

// renew extends one lease: by a write to its node, so that whoever waits behind it
// sees that it lives. Meanwhile it looks who waits.
func (s *session) renew(c caller, r driver.Renewal) (driver.Renewed, error) {
	l, ok := s.claims.lease(r.Owner)
	if !ok {
		return s.renewForeign(c, r)
	}
	var running sync.WaitGroup
	var all members
	var unread error
	running.Go(func() { all, unread = s.list(c, l.parent) })
	w, err := s.extend(c, l, r)
	running.Wait()
	switch {
	case err == zk.ErrNoNode || err == zk.ErrSessionExpired:
		s.claims.lose(l)
		return driver.Renewed{}, driver.ErrNotHeld
	case err != nil:
		return driver.Renewed{}, err
	}
	out := driver.Renewed{Deadline: driver.Deadline(w.sent, s.client.lasting(r.TTL))}
	if !s.claims.renewed(l, w, r.TTL, out.Deadline) {
		return driver.Renewed{}, driver.ErrNotHeld
	}
	if i := all.index(l.name); unread == nil && i >= 0 {
		out.Contended = all.behind(i, r.Share || s.claims.isLowered(l)) > 0
	}
	return out, nil
}

// extend writes to a lease's node.
func (s *session) extend(c caller, l *lease, r driver.Renewal) (written, error) {
	path := l.parent + "/" + l.name
	for first := true; ; first = false {
		rec, version, ok := s.claims.next(l, r)
		if !ok {
			return written{}, zk.ErrNoNode
		}
		w, err := s.set(c, path, rec, version)
		if first && again(c, err) {
			continue
		}
		if err != zk.ErrBadVersion {
			return w, err
		}
		// An earlier renewal was executed and its reply lost, or another runs.
		n, err := s.get(c, path)
		if err != nil {
			return written{}, err
		}
		s.claims.seen(l, n.stat.Version)
	}
}

// renewForeign renews a lease of another session, or one that is not held.
func (s *session) renewForeign(c caller, r driver.Renewal) (driver.Renewed, error) {
	if s.claims.ended(r.Owner) {
		return driver.Renewed{}, driver.ErrNotHeld
	}
	parent := s.keyPath(r.Key)
	name, err := s.locate(c, parent, r.Ref, r.Owner)
	if err != nil {
		return driver.Renewed{}, err
	}
	for name != "" {
		n, err := s.get(c, parent+"/"+name)
		if err == zk.ErrNoNode {
			break
		}
		if err != nil {
			return driver.Renewed{}, err
		}
		rec, err := parseRecord(n.data)
		if err != nil {
			return driver.Renewed{}, &driver.PermanentError{Err: err}
		}
		if rec.state == waiting {
			break
		}
		rec.token, rec.since = tokenOf(rec, n.stat)
		rec.ttl = max(rec.ttl, r.TTL)
		if m, _ := parseMember(name); r.Share && m.room == 1 {
			rec.state = lowered
		}
		w, err := s.set(c, parent+"/"+name, rec, n.stat.Version)
		if err == zk.ErrBadVersion {
			continue
		}
		if err == zk.ErrNoNode {
			break
		}
		if err != nil {
			return driver.Renewed{}, err
		}
		return driver.Renewed{Deadline: driver.Deadline(w.sent, s.client.lasting(r.TTL))}, nil
	}
	return driver.Renewed{}, driver.ErrNotHeld
}

// locate returns the name of an owner's node, "" if there is none.
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

// lease returns the lease of an owner.
func (c *claims) lease(o driver.Owner) (*lease, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.leases[o]
	return l, ok
}

// ended reports whether an owner is known to have ended.
func (c *claims) ended(o driver.Owner) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.how(o) != 0
}

func (c *claims) isLowered(l *lease) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return l.lowered
}

// next returns what to write for a renewal, which never shortens. What was once asked
// to be lowered stays so: the request may have been executed, and others let in.
func (c *claims) next(l *lease, r driver.Renewal) (rec record, version int32, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id.Owner] != l {
		return record{}, 0, false
	}
	l.lowered = l.lowered || r.Share && l.room == 1
	rec = record{state: granted, ttl: max(r.TTL, time.Until(l.ends)), token: l.token, since: l.since}
	if l.lowered {
		rec.state = lowered
	}
	return rec, l.version, true
}

// seen notes the version of a lease's node.
func (c *claims) seen(l *lease, version int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l.version = max(l.version, version)
}

// renewed notes a renewal, and reports whether the lease had not ended meanwhile.
func (c *claims) renewed(l *lease, w written, ttl time.Duration, deadline time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leases[l.id.Owner] != l {
		return false
	}
	l.version = max(l.version, w.stat.Version)
	l.ends = driver.Later(l.ends, w.sent.Add(ttl))
	l.believe = driver.Later(l.believe, deadline)
	return true
}
