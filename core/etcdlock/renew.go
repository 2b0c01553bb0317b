package etcdlock

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// together bounds how many requests of one call are under way at once.
const together = 64

// each calls do for 0 to n-1, several at a time, and returns when all have returned.
func each(n int, do func(int)) {
	if n == 1 {
		do(0)
		return
	}
	var all sync.WaitGroup
	room := make(chan struct{}, together)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			do(i)
		})
	}
	all.Wait()
}

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

func (s *session) renew(ctx context.Context, r driver.Renewal) driver.Renewed {
	if s.claims.fate(r.ID) != 0 {
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	cl := s.claims.get(r.ID)
	if cl == nil {
		var err error
		if cl, err = s.recover(ctx, r.ID); err != nil {
			return driver.Renewed{Err: err}
		}
	}
	out := s.extend(ctx, cl, r)
	switch {
	case out.Err == nil:
		s.claims.mu.Lock()
		cl.contended = out.Contended
		s.claims.mu.Unlock()
	case isLost(out.Err):
		out.Err = driver.ErrNotHeld
		s.claims.mu.Lock()
		current := s.claims.byID[r.ID] == cl && !cl.ending
		s.claims.mu.Unlock()
		if current && s.claims.end(r.ID, over) {
			s.giveBack(cl, false)
		}
	}
	return out
}

// recover finds a lease that another session was granted.
func (s *session) recover(ctx context.Context, id driver.ID) (*claim, error) {
	n := namesOf(id)
	r, err := s.commit(ctx, nil, []clientv3.Op{clientv3.OpGet(n.place)}, nil)
	if err != nil {
		return nil, err
	}
	kvs := r.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil, driver.ErrNotHeld
	}
	e, err := parseEntry(kvs[0])
	if err != nil {
		return nil, err
	}
	if e.stage != holding {
		return nil, driver.ErrNotHeld
	}
	return &claim{
		id: id, names: n, create: e.create, token: e.token, turning: make(chan struct{}, 1),
		leases: []clientv3.LeaseID{e.lease}, place: e.place,
	}, nil
}

// extend renews the lease of etcd that the owner's place is on. It looks at the place
// too: that may have been taken away alone, and others may wait behind it.
func (s *session) extend(ctx context.Context, cl *claim, r driver.Renewal) driver.Renewed {
	if err := cl.turn(ctx); err != nil {
		return driver.Renewed{Err: err}
	}
	defer cl.turned()
	s.claims.mu.Lock()
	ending, on, p := cl.ending, cl.leases[len(cl.leases)-1], cl.place
	known, sure := cl.seconds, len(cl.leases) == 1
	s.claims.mu.Unlock()
	if ending {
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	lower := r.Share && p.mode == driver.Exclusive
	if lower {
		p.mode = driver.Shared
	}
	if known == 0 || known >= seconds(r.TTL) && sure {
		out, t := s.prolong(ctx, cl, on, p, lower, r)
		if out.Err != nil || t.seconds >= seconds(r.TTL) {
			return out
		}
	}
	return s.move(ctx, cl, p, r)
}

// prolong keeps the lease alive and, beside it, reads or lowers the place.
func (s *session) prolong(ctx context.Context, cl *claim, on clientv3.LeaseID, p place, lower bool, r driver.Renewal) (driver.Renewed, term) {
	var t term
	var kept error
	both := make(chan struct{})
	s.Start(func() {
		defer close(both)
		t, kept = s.keepAlive(ctx, on)
	})
	contended, err := s.touch(ctx, cl, term{id: on, used: true}, p, lower)
	<-both // ends with ctx, like the other
	switch {
	case err == nil && kept != nil:
		err = kept
	case isLost(kept):
		err = kept
	}
	if err != nil {
		return driver.Renewed{Err: err}, t
	}
	s.claims.mu.Lock()
	cl.seconds, cl.sent, cl.place = t.seconds, t.sent, p
	s.claims.mu.Unlock()
	return driver.Renewed{Deadline: t.deadline(r.TTL), Contended: contended}, t
}

// move puts the place on a lease that is long enough, as etcd's own cannot be made
// longer.
func (s *session) move(ctx context.Context, cl *claim, p place, r driver.Renewal) driver.Renewed {
	t, err := s.newTerm(ctx, r.TTL)
	if err != nil {
		return driver.Renewed{Err: err}
	}
	s.claims.mu.Lock()
	before := cl.leases
	if cl.ending {
		s.claims.mu.Unlock()
		s.owe(debt{leases: []clientv3.LeaseID{t.id}, used: true}, r.TTL)
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	cl.leases = append(before[:len(before):len(before)], t.id)
	s.claims.mu.Unlock()

	p.ttl = max(p.ttl, r.TTL)
	contended, err := s.touch(ctx, cl, t, p, true)
	if err != nil && !isLost(err) {
		return driver.Renewed{Err: err} // it is on one of them
	}
	s.claims.mu.Lock()
	ending := cl.ending
	if err == nil && !ending {
		cl.leases, cl.seconds, cl.sent, cl.place = []clientv3.LeaseID{t.id}, t.seconds, t.sent, p
	}
	s.claims.mu.Unlock()
	switch {
	case err != nil:
		return driver.Renewed{Err: err}
	case ending:
		s.owe(debt{leases: []clientv3.LeaseID{t.id}, used: true}, r.TTL)
		return driver.Renewed{Err: driver.ErrNotHeld}
	}
	s.owe(debt{leases: before, used: true}, p.ttl)
	return driver.Renewed{Deadline: t.deadline(r.TTL), Contended: contended}
}

// touch makes sure that the owner has its place, and writes to it or not.
func (s *session) touch(ctx context.Context, cl *claim, on term, p place, write bool) (contended bool, err error) {
	then := []clientv3.Op{cl.names.newest()}
	ifs := []clientv3.Cmp{cl.names.isOld(cl.create)}
	if write {
		p.token = cl.token
		then = append(cl.names.writeFirst(p, on), then...)
	}
	r, doubt, err := s.commitWithDoubt(ctx, ifs, then, nil)
	if write && doubt {
		s.claims.mu.Lock()
		cl.doubt = true
		s.claims.mu.Unlock()
	}
	switch {
	case err != nil:
		return false, err
	case !r.Succeeded:
		return false, driver.ErrNotHeld
	}
	return othersWait(r.Responses[len(r.Responses)-1].GetResponseRange(), cl.names.place)
}
