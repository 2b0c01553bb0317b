package etcdlock

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// Renew extends leases.
func (s *session) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	out := make([]driver.Renewed, len(rs))
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	defer leave()
	each(len(rs), func(i int) { out[i] = s.renew(ctx, rs[i]) })
	return out
}

// renew extends one lease.
func (s *session) renew(ctx context.Context, r driver.Renewal) driver.Renewed {
	cl, ended := s.claims.find(r.ID)
	switch {
	case ended != 0:
		return driver.Renewed{Err: driver.ErrNotHeld}
	case cl == nil:
		var err error
		if cl, err = s.findOfOtherSession(ctx, r.ID, r.Ref, r.Token); err != nil {
			return driver.Renewed{Err: err}
		}
	}
	out := s.extend(ctx, cl, r)
	switch {
	case out.Err == nil:
		out.Contended, _ = s.claims.hear(cl, out.Contended, cl.readAt.Load()) // an event may be newer
	case isLost(out.Err):
		out.Err = driver.ErrNotHeld
		s.claims.mu.Lock()
		current := s.claims.byID[r.ID] == cl && !cl.releasing
		s.claims.mu.Unlock()
		if current && s.claims.end(r.ID, notHeld) {
			s.giveBackLeases(cl, false)
		}
	}
	return out
}

// extend renews the etcd lease that the owner's place is on. It reads the queue too: the place
// alone may have been deleted, and others may wait behind it.
func (s *session) extend(ctx context.Context, cl *claim, r driver.Renewal) driver.Renewed {
	if err := cl.lockWriting(ctx); err != nil {
		return driver.Renewed{Err: err}
	}
	defer cl.unlockWriting()
	s.claims.mu.Lock()
	releasing, on, p := cl.releasing, cl.leases[len(cl.leases)-1], cl.place
	known, single := cl.seconds, len(cl.leases) == 1
	s.claims.mu.Unlock()
	if releasing {
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	lower := r.Share && p.mode == driver.Exclusive
	if lower {
		p.mode = driver.Shared
	}
	if known == 0 || known >= seconds(r.TTL) && single {
		out, l := s.keepAliveAndRead(ctx, cl, on, p, lower, r)
		if out.Err != nil || l.seconds >= seconds(r.TTL) {
			return out
		}
	}
	return s.move(ctx, cl, p, r)
}

// keepAliveAndRead keeps the etcd lease alive and, at the same time, reads or lowers the place.
func (s *session) keepAliveAndRead(ctx context.Context, cl *claim, on clientv3.LeaseID, p place, lower bool, r driver.Renewal) (driver.Renewed, etcdLease) {
	var l etcdLease
	var keepAliveErr error
	both := make(chan struct{})
	s.Start(func() {
		defer close(both)
		l, keepAliveErr = s.keepAlive(ctx, on)
	})
	contended, _, err := s.touch(ctx, cl, etcdLease{id: on, used: true}, p, lower)
	<-both // ends with ctx, like the other
	switch {
	case err == nil && keepAliveErr != nil:
		err = keepAliveErr
	case isLost(keepAliveErr):
		err = keepAliveErr
	}
	if err != nil {
		return driver.Renewed{Err: err}, l
	}
	s.claims.mu.Lock()
	cl.seconds, cl.sent, cl.place = l.seconds, l.sent, p
	s.claims.mu.Unlock()
	return driver.Renewed{Deadline: l.deadline(r.TTL), Contended: contended}, l
}

// move puts the place on a longer etcd lease, since a lease of etcd cannot be made longer.
func (s *session) move(ctx context.Context, cl *claim, p place, r driver.Renewal) driver.Renewed {
	l, err := s.newLease(ctx, r.TTL)
	if err != nil {
		return driver.Renewed{Err: err}
	}
	s.claims.mu.Lock()
	before := cl.leases
	if cl.releasing {
		s.claims.mu.Unlock()
		s.owe(debt{leases: []clientv3.LeaseID{l.id}, used: true}, r.TTL)
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	cl.leases = append(before[:len(before):len(before)], l.id)
	s.claims.mu.Unlock()

	p.ttl = max(p.ttl, r.TTL)
	contended, _, err := s.touch(ctx, cl, l, p, true)
	if err != nil && !isLost(err) {
		return driver.Renewed{Err: err} // the place is on one of the two leases
	}
	s.claims.mu.Lock()
	releasing := cl.releasing
	if err == nil && !releasing {
		cl.leases, cl.seconds, cl.sent, cl.place = []clientv3.LeaseID{l.id}, l.seconds, l.sent, p
	}
	s.claims.mu.Unlock()
	switch {
	case err != nil:
		return driver.Renewed{Err: err}
	case releasing:
		s.owe(debt{leases: []clientv3.LeaseID{l.id}, used: true}, r.TTL)
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	s.giveUpLeases(cl, before)
	return driver.Renewed{Deadline: l.deadline(r.TTL), Contended: contended}
}

// touch checks that the owner has its place, and writes p to it if write is set. uncertain reports
// that an earlier attempt may have written it.
func (s *session) touch(ctx context.Context, cl *claim, on etcdLease, p place, write bool) (contended, uncertain bool, err error) {
	then := []clientv3.Op{cl.names.newest()}
	ifs := []clientv3.Cmp{cl.names.isOld(cl.create)}
	if write {
		p.token = cl.token
		then = append(cl.names.writeFirst(p, on), then...)
	}
	r, uncertain, err := s.commitUncertain(ctx, ifs, then, nil)
	if write && uncertain {
		s.claims.mu.Lock()
		cl.uncertain = true
		s.claims.mu.Unlock()
	}
	switch {
	case err != nil:
		return false, uncertain, err
	case !r.Succeeded:
		return false, uncertain, driver.ErrNotHeld
	}
	cl.readAt.Store(r.Header.Revision)
	contended, err = othersWait(r.Responses[len(r.Responses)-1].GetResponseRange(), cl.names.place)
	return contended, uncertain, err
}
