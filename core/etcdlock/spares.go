package etcdlock

import (
	"slices"
	"sync"
	"time"
)

// maxSpares bounds the leases of etcd that a session keeps for its next places.
const maxSpares = 256

// spares are leases of etcd whose place is gone, for the next place: to grant a lease and
// to revoke it are two writes that a majority agrees on. A lease is spare only if each
// request that put something on it was answered, at the first attempt: or else a late copy
// could put a place on it that nobody knows of. The zero value is ready for use.
type spares struct {
	mu        sync.Mutex
	bySeconds map[int64][]term
	n         int
	closed    bool
}

// add takes a lease in, and reports whether it has.
func (s *spares) add(t term) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= maxSpares {
		s.drop(time.Now())
	}
	if s.closed || s.n >= maxSpares {
		return false
	}
	if s.bySeconds == nil {
		s.bySeconds = make(map[int64][]term)
	}
	s.bySeconds[t.seconds] = append(s.bySeconds[t.seconds], t)
	s.n++
	return true
}

// take returns the spare lease that was used last, if it lasts for a while yet. Those that
// do not are left to end by themselves.
func (s *spares) take(seconds int64, now time.Time) (t term, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.bySeconds[seconds]
	if len(all) == 0 {
		return term{}, false
	}
	if t = all[len(all)-1]; t.old(now) {
		s.n -= len(all)
		delete(s.bySeconds, seconds)
		return term{}, false
	}
	s.n--
	if s.bySeconds[seconds] = all[:len(all)-1]; len(all) == 1 {
		delete(s.bySeconds, seconds)
	}
	return t, true
}

// old reports whether a lease lasts for too short a time to be used again.
func (t term) old(now time.Time) bool { return now.Sub(t.sent) > inSeconds(t.seconds)/2 }

// drop forgets those that nobody has taken for long. s.mu is held.
func (s *spares) drop(now time.Time) {
	s.n = 0
	for seconds, all := range s.bySeconds {
		all = slices.DeleteFunc(all, func(t term) bool { return t.old(now) })
		if s.bySeconds[seconds] = all; len(all) == 0 {
			delete(s.bySeconds, seconds)
		}
		s.n += len(all)
	}
}

// close returns those that are left, and takes no more.
func (s *spares) close() (all []term) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.bySeconds {
		all = append(all, of...)
	}
	s.bySeconds, s.n, s.closed = nil, 0, true
	return all
}
