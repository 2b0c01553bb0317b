package zklock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

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
		if out[i], err = s.renew(s.callerOf(ctx), rs[i]); err != nil {
			out[i] = driver.Renewed{Err: callerError(err)}
		}
	})
	return out
}

// renew extends one lease by a write to its node, so that the next waiter sees that it lives. At
// the same time it reads who waits.
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
	out := driver.Renewed{Deadline: driver.Deadline(w.sent, s.client.cappedTTL(r.TTL))}
	if !s.claims.renewed(l, w, r.TTL, out.Deadline) {
		return driver.Renewed{}, driver.ErrNotHeld
	}
	if i := all.index(l.name); unread == nil && i >= 0 {
		out.Contended = all.behind(i, r.Share || s.claims.isLowered(l)) > 0
	}
	return out, nil
}

// extend writes a renewal to a lease's node.
func (s *session) extend(c caller, l *lease, r driver.Renewal) (written, error) {
	path := l.parent + "/" + l.name
	for first := true; ; first = false {
		rec, version, ok := s.claims.nextRenewal(l, r)
		if !ok {
			return written{}, zk.ErrNoNode
		}
		w, err := s.set(c, path, rec, version)
		if first && retryAtOnce(c, err) {
			continue
		}
		if err != zk.ErrBadVersion {
			return w, err
		}
		// An earlier renewal was executed although its reply was lost, or another is running.
		n, err := s.get(c, path)
		if err != nil {
			return written{}, err
		}
		s.claims.noteVersion(l, n.stat.Version)
	}
}

// renewForeign renews a lease of another session. The lease may have ended.
func (s *session) renewForeign(c caller, r driver.Renewal) (driver.Renewed, error) {
	if s.claims.hasEnded(r.Owner) {
		return driver.Renewed{}, driver.ErrNotHeld
	}
	parent := s.keyPath(r.Key)
	for {
		holders, _, err := s.readHolders(c, parent)
		if err != nil {
			return driver.Renewed{}, err
		}
		i := slices.IndexFunc(holders, func(h holder) bool { return h.mark == mark(r.Owner) })
		if i < 0 {
			return driver.Renewed{}, driver.ErrNotHeld
		}
		h := holders[i]
		rec := record{state: max(h.rec.state, granted), ttl: max(h.rec.ttl, r.TTL), since: sinceOf(h.rec, h.stat)}
		if r.Share && h.capacity == 1 {
			rec.state = lowered
		}
		w, err := s.set(c, parent+"/"+h.name, rec, h.stat.Version)
		if err == zk.ErrBadVersion || err == zk.ErrNoNode {
			continue
		}
		if err != nil {
			return driver.Renewed{}, err
		}
		return driver.Renewed{Deadline: driver.Deadline(w.sent, s.client.cappedTTL(r.TTL))}, nil
	}
}

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

const (
	firstPause = 20 * time.Millisecond // before a retry
	maxPause   = time.Second

	// cleaners bounds how many given-up owners are deleted at once.
	cleaners = 1024
)

// debt is an owner that was given up and has to be deleted at the servers.
type debt struct {
	parent string
	mark   string
	name   string          // of its node; empty if not known
	after  <-chan struct{} // closed when the call that creates the node has ended; may be nil
}

// owe starts to delete an owner. When the TTL is over, other sessions that wait may do so too; but
// for them its node lasts as long as this process's session at the servers. So there is no limit.
func (s *session) owe(d debt) {
	s.debts.Owe(d, kit.Debt{After: d.after, End: func(ctx context.Context) error {
		return s.deleteOwner(caller{ctx, s.Ctx.Done()}, d)
	}})
}

// deleteOwner makes one attempt to delete an owner's node.
func (s *session) deleteOwner(c caller, d debt) error {
	name := d.name
	if name == "" {
		m, ok, err := s.find(c, d.parent, d.mark)
		if err != nil || !ok {
			return classify(err)
		}
		name = m.name
	}
	if err := s.remove(c, d.parent+"/"+name); err != nil && err != zk.ErrNoNode && err != zk.ErrSessionExpired {
		return classify(err)
	}
	return nil
}
