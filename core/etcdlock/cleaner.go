package etcdlock

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// cleaners bounds how many endings of given-up owners are under way at once.
const cleaners = 16

// debt is what was given up and must end at the server: leases, with all that is on
// them. A lease that is revoked takes with it whatever a late request may still try to
// put on it.
type debt struct {
	leases []clientv3.LeaseID
	spare  term      // to be one when the place is gone; its id is 0 if there is none
	place  string    // to be deleted; "" is none
	used   bool      // places were on the leases, and those behind are to see that they were given up
	knock  string    // to be written, before its lease is revoked; "" is nothing
	due    time.Time // until then it is not given up, but kept; zero is at once
	done   func()    // called when it is over; nil is nothing
}

// owe has a debt paid. The server has ended what is owed ttl after it is due. When the
// session is closed, what is kept is left to its lease.
func (s *session) owe(d debt, ttl time.Duration) {
	pay := func() {
		s.debts.Owe(&d, kit.Debt{Limit: ttl + 2*s.timeout, Over: d.done, End: func(ctx context.Context) error {
			if err := s.settle(ctx, &d); passing(err) {
				return err
			}
			return nil
		}})
	}
	if d.due.IsZero() {
		pay()
		return
	}
	s.Start(func() {
		if kit.Sleep(s.Open, time.Until(d.due)) {
			pay()
		}
	})
}

// settle does what a debt says. It may be done again.
func (s *session) settle(ctx context.Context, d *debt) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, silence(s.timeout))
	defer cancel()
	if d.knock != "" {
		s.knock(ctx, d)
		d.knock = "" // one message is enough, and may be lost
	}
	if d.place != "" || d.used {
		if err := s.detach(ctx, d); err != nil {
			return err
		}
		d.place, d.used = "", false
	}
	if t := d.spare; t.id != 0 {
		if d.spare = (term{}); !s.spares.add(t) { // there are enough
			d.leases, d.used = append(d.leases, t.id), t.used
			return s.settle(ctx, d)
		}
	}
	for len(d.leases) > 0 {
		lease := d.leases[0]
		if _, err := once(ctx, s, func(ctx context.Context) (none, error) { return s.revoke(ctx, lease) }); err != nil && !absent(err) {
			return err
		}
		d.leases = d.leases[1:]
	}
	return nil
}

// detach deletes a debt's place, and has what shows that its leases live outlast them.
func (s *session) detach(ctx context.Context, d *debt) error {
	var ops []clientv3.Op
	if d.place != "" {
		ops = append(ops, clientv3.OpDelete(d.place))
	}
	if len(d.leases) > 0 {
		on, err := s.outlasting(ctx)
		if err != nil {
			return err
		}
		for _, lease := range d.leases {
			ops = append(ops, clientv3.OpPut(lifeOf(lease), "", clientv3.WithLease(on)))
		}
	}
	_, err := once(ctx, s, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.d.client.Txn(ctx).Then(ops...).Commit()
	})
	return err
}

// knock lets the holder of a key hear of a request that was refused.
func (s *session) knock(ctx context.Context, d *debt) {
	if len(d.leases) == 0 {
		t, err := s.newTerm(ctx, minTTL)
		if err != nil {
			return
		}
		d.leases = append(d.leases, t.id)
	}
	_, _ = once(ctx, s, func(ctx context.Context) (none, error) {
		_, err := s.d.client.Put(ctx, d.knock, "", clientv3.WithLease(d.leases[0]))
		return none{}, err
	})
}
