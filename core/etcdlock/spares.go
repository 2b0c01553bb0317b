package etcdlock

import (
	"slices"
	"sync"
	"time"
)

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
