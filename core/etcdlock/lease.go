package etcdlock

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// etcdLease is a lease of etcd, as last granted or renewed.
type etcdLease struct {
	id      clientv3.LeaseID
	seconds int64     // it lasts at least so long from sent on
	sent    time.Time // before the answered grant or renewal was sent
	used    bool      // a place and the alive key were written on it
	key     string    // of its last place
}

// deadline returns when a holder who asked for ttl must consider the lease over.
func (l etcdLease) deadline(ttl time.Duration) time.Time {
	return driver.Deadline(l.sent, min(ttl, secondsToDuration(l.seconds)))
}

// minTTL is the shortest lease that etcd grants with its default election time-out: one and
// a half of it, in whole seconds.
const minTTL = 2 * time.Second

// secondsToDuration returns n seconds, or the longest duration if that is too long.
func secondsToDuration(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(min(n, most)) * time.Second
}

// seconds returns ttl in whole seconds, rounded up.
func seconds(ttl time.Duration) int64 {
	n := int64(ttl / time.Second)
	if ttl%time.Second > 0 {
		n++
	}
	return n
}

// spares are etcd leases whose place is gone, kept for the next place. That saves two writes
// to a majority: a grant and a revocation. A lease becomes a spare only if every request that
// put a key on it was answered at the first attempt. Otherwise a late copy of a request could
// put a place on it that nobody knows of. The zero value is ready for use.
type spares struct {
	mu        sync.Mutex
	bySeconds map[int64][]etcdLease
	n         int
	closed    bool
}

// maxSpares bounds the etcd leases that a session keeps for its next places.
const maxSpares = 256

// add adds a lease, and reports whether there was room for it.
func (s *spares) add(l etcdLease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= maxSpares {
		s.drop(time.Now())
	}
	if s.closed || s.n >= maxSpares {
		return false
	}
	if s.bySeconds == nil {
		s.bySeconds = make(map[int64][]etcdLease)
	}
	s.bySeconds[l.seconds] = append(s.bySeconds[l.seconds], l)
	s.n++
	return true
}

// take removes and returns the spare that was added last, unless it is too old. One whose last
// place was of the same key comes first, so that the key has few names. Those that are too old are
// left to expire.
func (s *spares) take(seconds int64, key string, now time.Time) (l etcdLease, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.bySeconds[seconds]
	if len(all) == 0 {
		return etcdLease{}, false
	}
	if l = all[len(all)-1]; l.tooOldToReuse(now) {
		s.n -= len(all)
		delete(s.bySeconds, seconds)
		return etcdLease{}, false
	}
	at := len(all) - 1
	for i, of := range slices.Backward(all) {
		if of.key == key && !of.tooOldToReuse(now) {
			at, l = i, of
			break
		}
	}
	s.n--
	if s.bySeconds[seconds] = slices.Delete(all, at, at+1); len(all) == 1 {
		delete(s.bySeconds, seconds)
	}
	return l, true
}

// tooOldToReuse reports whether too little is left of a lease.
func (l etcdLease) tooOldToReuse(now time.Time) bool {
	return now.Sub(l.sent) > secondsToDuration(l.seconds)/2
}

// drop forgets the spares that are too old. s.mu is held.
func (s *spares) drop(now time.Time) {
	s.n = 0
	for seconds, all := range s.bySeconds {
		all = slices.DeleteFunc(all, func(l etcdLease) bool { return l.tooOldToReuse(now) })
		if s.bySeconds[seconds] = all; len(all) == 0 {
			delete(s.bySeconds, seconds)
		}
		s.n += len(all)
	}
}

// close returns the spares that are left, and accepts no more.
func (s *spares) close() (all []etcdLease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.bySeconds {
		all = append(all, of...)
	}
	s.bySeconds, s.n, s.closed = nil, 0, true
	return all
}

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
