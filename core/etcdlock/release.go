package etcdlock

import (
	"context"
	"errors"
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

// release ends one lease.
func (s *session) release(ctx context.Context, e driver.Ending) error {
	cl, ended := s.claims.find(e.ID)
	switch {
	case ended == released:
		return nil
	case ended == notHeld:
		return driver.ErrNotHeld
	case cl == nil:
		var err error
		if cl, err = s.findOfOtherSession(ctx, e.ID, e.Ref, e.Token); err != nil {
			return err
		}
		s.claims.addOfOtherSession(cl)
	}
	first, inTime := s.claims.beginRelease(cl, e.Deadline, time.Now())
	held, err := s.endPlace(ctx, cl, e.Keep, first)
	if err != nil {
		// The lease has ended for this process, whatever the request's outcome.
		leases, ttl := s.claims.giveUp(cl)
		d := debt{done: func() { s.claims.end(e.ID, released) }}
		if cl.foreign() { // its session may use the name and the lease again
			d.foreign = &e
		} else {
			d.place, d.leases = cl.names.place, leases
		}
		if e.Keep > 0 && !cl.foreign() {
			d.due = cl.granted.Add(e.Keep)
		}
		s.owe(d, ttl)
		return err
	}
	if held && inTime { // the lease at etcd outlasts the deadline of its holder
		s.claims.end(e.ID, released)
		return nil
	}
	s.claims.end(e.ID, notHeld)
	return driver.ErrNotHeld
}

// endPlace deletes the place of a lease, or keeps the key. held is false if the place was
// gone, unless an earlier request whose answer was lost may have deleted it.
func (s *session) endPlace(ctx context.Context, cl *claim, keep time.Duration, first bool) (held bool, err error) {
	for left := keep; left > 0; {
		if !cl.foreign() { // otherwise only another session knows when it was granted
			if left = time.Until(cl.granted.Add(keep)); left <= 0 {
				break
			}
		}
		if held, err = s.keepKey(ctx, cl, left); !leaseNotFound(err) {
			return held || !first, err
		}
	}
	if cl.foreign() { // its session may use the name again
		r, uncertain, err := s.commitUncertain(ctx, []clientv3.Cmp{cl.names.isOld(cl.create)}, []clientv3.Op{clientv3.OpDelete(cl.names.place)}, nil)
		return err == nil && (r.Succeeded || uncertain || !first), err
	}
	deleted, uncertain, err := s.delete(ctx, cl.names)
	if err != nil {
		return false, err
	}
	s.giveBackLeases(cl, deleted && !uncertain)
	return deleted || uncertain || !first, nil
}

// keepKey keeps the key taken, by nobody, for the time that is left. Then this process frees
// it. If the process has ended, etcd frees it when the lease expires, a few seconds later. If that
// lease has ended before the key was on it, the error says that it was not found.
func (s *session) keepKey(ctx context.Context, cl *claim, left time.Duration) (held bool, err error) {
	until := time.Now().Add(left)
	if err := cl.lockWriting(ctx); err != nil {
		return false, err
	}
	defer cl.unlockWriting()
	l, err := s.newLease(ctx, left)
	if err != nil {
		return false, err
	}
	s.claims.mu.Lock()
	before := cl.leases
	cl.leases = append(before[:len(before):len(before)], l.id)
	s.claims.mu.Unlock()
	p := cl.place
	p.stage = kept
	l.used = true // it needs no alive key: nobody waits for its holder
	_, uncertain, err := s.touch(ctx, cl, l, p, true)
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		s.owe(debt{leases: []clientv3.LeaseID{l.id}}, left)
		return uncertain, nil // it may have been put on that lease, and have ended with it
	case err != nil:
		return false, err
	}
	s.giveUpLeases(cl, before)
	s.owe(debt{leases: []clientv3.LeaseID{l.id}, due: until}, left)
	return true, nil
}
