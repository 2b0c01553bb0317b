package etcdlock

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
)

// Release ends leases.
func (s *session) Release(ctx context.Context, es []driver.Ending) []error {
	out := make([]error, len(es))
	ctx, leave, err := s.enter(ctx)
	if err != nil {
		for i := range out {
			out[i] = err
		}
		return out
	}
	defer leave()
	each(len(es), func(i int) { out[i] = s.release(ctx, es[i]) })
	return out
}

func (s *session) release(ctx context.Context, e driver.Ending) error {
	switch s.claims.fate(e.ID) {
	case released:
		return nil
	case over:
		return driver.ErrNotHeld
	}
	cl := s.claims.get(e.ID)
	if cl == nil {
		var err error
		if cl, err = s.recover(ctx, e.ID); err != nil {
			return err
		}
		s.claims.note(cl)
	}
	first, timely := s.claims.part(cl, e.Deadline, time.Now())
	held, err := s.part(ctx, cl, e.Keep, first)
	if err != nil {
		// The owner is over for this process whatever became of the request.
		leases, ttl := s.claims.on(cl)
		d := debt{place: cl.names.place, leases: leases, done: func() { s.claims.end(e.ID, released) }}
		if e.Keep > 0 && !cl.granted.IsZero() {
			d.due = cl.granted.Add(e.Keep)
		}
		s.owe(d, ttl)
		return err
	}
	if held && timely { // etcd keeps a lease for longer than its holder may believe in it
		s.claims.end(e.ID, released)
		return nil
	}
	s.claims.end(e.ID, over)
	return driver.ErrNotHeld
}

// part ends a lease, or has the key kept. held is false if it was not there any more,
// unless a request whose answer was lost may have ended it.
func (s *session) part(ctx context.Context, cl *claim, keep time.Duration, first bool) (held bool, err error) {
	if keep > 0 {
		left := keep
		if !cl.granted.IsZero() { // or else another session knows when
			left = time.Until(cl.granted.Add(keep))
		}
		if left > 0 {
			return s.leave(ctx, cl, left)
		}
	}
	r, doubt, err := s.commitWithDoubt(ctx, []clientv3.Cmp{cl.names.isOld(cl.create)}, []clientv3.Op{clientv3.OpDelete(cl.names.place)}, nil)
	if err != nil {
		return false, err
	}
	s.giveBack(cl, r.Succeeded)
	return r.Succeeded || doubt || !first, nil
}

// giveBack lets go of the leases of a claim. parted says that its place is gone by a request of this
// session; otherwise it is to go, or has gone by itself.
func (s *session) giveBack(cl *claim, parted bool) {
	s.claims.mu.Lock()
	leases, ttl := slices.Clone(cl.leases), cl.place.ttl
	t := term{seconds: cl.seconds, sent: cl.sent, used: true}
	clean := parted && !cl.doubt && len(leases) == 1 && !cl.sent.IsZero()
	s.claims.mu.Unlock()
	if clean {
		t.id = leases[0]
		if s.spares.add(t) {
			return
		}
	}
	s.owe(debt{place: cl.names.place, leases: leases}, ttl)
}

// leave has the key kept, by nobody, for as long as is left, and as long as its last
// holder's process lives to end it. After that the lease ends it, which is a few
// seconds longer.
func (s *session) leave(ctx context.Context, cl *claim, left time.Duration) (held bool, err error) {
	due := time.Now().Add(left)
	if err := cl.turn(ctx); err != nil {
		return false, err
	}
	defer cl.turned()
	t, err := s.newTerm(ctx, left)
	if err != nil {
		return false, err
	}
	s.claims.mu.Lock()
	before := cl.leases
	cl.leases = append(before[:len(before):len(before)], t.id)
	s.claims.mu.Unlock()
	p := cl.place
	p.stage = kept
	t.used = true // nobody looks how long it lasts
	_, err = s.touch(ctx, cl, t, p, true)
	switch {
	case isLost(err):
		s.owe(debt{leases: []clientv3.LeaseID{t.id}}, left)
		return false, nil
	case err != nil:
		return false, err
	}
	s.owe(debt{leases: before, used: true}, cl.place.ttl)
	s.owe(debt{leases: []clientv3.LeaseID{t.id}, due: due}, left)
	return true, nil
}
