package etcdlock

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// giveBackLeases revokes the etcd leases of a claim, or keeps one as a spare. placeDeleted
// reports that this session has deleted the place, and that no copy of that request may yet come.
// Otherwise the place is deleted too. Another session's leases are left to it.
func (s *session) giveBackLeases(cl *claim, placeDeleted bool) {
	if cl.foreign() {
		return
	}
	s.claims.mu.Lock()
	leases, ttl := slices.Clone(cl.leases), cl.place.ttl
	l := etcdLease{seconds: cl.seconds, sent: cl.sent, used: true, key: cl.id.Key}
	reusable := placeDeleted && !cl.uncertain && len(leases) == 1 && !cl.sent.IsZero()
	s.claims.mu.Unlock()
	if reusable {
		l.id = leases[0]
		if s.spares.add(l) {
			return
		}
	}
	s.owe(debt{place: cl.names.place, leases: leases}, ttl)
}

// giveUpLeases revokes the leases that a claim's place has moved from. Another session's are left
// to it.
func (s *session) giveUpLeases(cl *claim, leases []clientv3.LeaseID) {
	if !cl.foreign() {
		s.owe(debt{leases: leases, used: true}, cl.place.ttl)
	}
}

// revokeSpares revokes the spare leases.
func (s *session) revokeSpares() {
	left := s.spares.close()
	for batch := range slices.Chunk(left, 64) {
		d, longest := debt{used: true}, int64(0)
		for _, l := range batch {
			d.leases, longest = append(d.leases, l.id), max(longest, l.seconds)
		}
		s.owe(d, secondsToDuration(longest))
	}
}

// cleaners bounds how many debts are settled at once.
const cleaners = 16

// owe starts to clean up, or does so when d is due. All of it ends at etcd by itself ttl
// after that. If the session is closed before d is due, a kept key is left to expire.
func (s *session) owe(d debt, ttl time.Duration) {
	pay := func() {
		end := func(ctx context.Context) error { return s.cleanUp(ctx, &d) }
		s.debts.Owe(&d, kit.Debt{Limit: ttl + 2*s.timeout, Over: d.done, End: end})
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

// cleanUp cleans a debt up. After an error it is called again, and does what is left.
func (s *session) cleanUp(ctx context.Context, d *debt) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, silenceError(s.timeout))
	defer cancel()
	if d.foreign != nil {
		if err := s.endForeign(ctx, d.foreign); err != nil {
			return err
		}
		d.foreign = nil
	}
	if d.contended != "" {
		s.tellContended(ctx, d)
		d.contended = "" // one attempt is enough: the message may be lost
	}
	if d.place != "" || d.used {
		if err := s.deletePlace(ctx, d); err != nil {
			d.revokeSpare() // a late copy of the request could delete the next place of that name
			return err
		}
		d.place, d.used = "", false
	}
	if d.spare.id != 0 {
		if !s.spares.add(d.spare) { // there are enough spares
			d.revokeSpare()
			return s.cleanUp(ctx, d)
		}
		d.spare = etcdLease{}
	}
	for len(d.leases) > 0 {
		lease := d.leases[0]
		if _, err := attempt(ctx, s, func(ctx context.Context) (none, error) { return s.revoke(ctx, lease) }); err != nil && !leaseNotFound(err) {
			return err
		}
		d.leases = d.leases[1:]
	}
	return nil
}

// revokeSpare has the spare revoked.
func (d *debt) revokeSpare() {
	if d.spare.id != 0 {
		d.leases, d.used, d.spare = append(d.leases, d.spare.id), d.spare.used, etcdLease{}
	}
}

// tellContended writes the contended key, so that the holder hears of a refused request.
func (s *session) tellContended(ctx context.Context, d *debt) {
	if len(d.leases) == 0 {
		l, err := s.newLease(ctx, minTTL)
		if err != nil {
			return
		}
		d.leases = append(d.leases, l.id)
	}
	_, _ = attempt(ctx, s, func(ctx context.Context) (none, error) {
		_, err := s.client.Put(ctx, d.contended, "", clientv3.WithLease(d.leases[0]))
		return none{}, err
	})
}

// deletePlace deletes a debt's place, and moves the alive keys of its leases to another lease.
func (s *session) deletePlace(ctx context.Context, d *debt) error {
	var on clientv3.LeaseID
	var ops []clientv3.Op
	if d.place != "" {
		ops = append(ops, clientv3.OpDelete(d.place))
	}
	if len(d.leases) > 0 {
		var err error
		if on, err = s.leaseForAliveKeys(ctx); err != nil {
			return err
		}
		for _, lease := range d.leases {
			ops = append(ops, clientv3.OpPut(aliveKeyOf(lease), "", clientv3.WithLease(on)))
		}
	}
	_, err := attempt(ctx, s, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return s.client.Txn(ctx).Then(ops...).Commit()
	})
	if leaseNotFound(err) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.aliveKeyLease.id == on {
			s.aliveKeyLease = etcdLease{} // or else it would be used again
		}
	}
	return err
}

// leaseForAliveKeys returns an etcd lease that lasts for aliveKeyTTL at least. Alive keys
// move to it when their own lease is given up. It expires by itself.
func (s *session) leaseForAliveKeys(ctx context.Context) (clientv3.LeaseID, error) {
	s.mu.Lock()
	l := s.aliveKeyLease
	s.mu.Unlock()
	if l.id != clientv3.NoLease && time.Since(l.sent) < aliveKeyTTL {
		return l.id, nil
	}
	l, err := s.newLease(ctx, 2*aliveKeyTTL)
	if err != nil {
		return clientv3.NoLease, err
	}
	s.mu.Lock()
	s.aliveKeyLease = l
	s.mu.Unlock()
	return l.id, nil
}
