package drivertest_test

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// store is the far side of the reference driver: what a server would do, one
// request at a time, with a clock and a queue for each key.
type store struct {
	fault fault

	mu   sync.Mutex
	keys map[string]*record
	last int64 // of a counter, for the fault that uses one
}

// record is what the store knows about a key.
type record struct {
	owner   driver.Owner // zero if nobody holds it
	holder  *session     // whom to tell
	token   int64
	issued  int64 // the last token given to anybody, for faults
	granted time.Time
	expiry  time.Time
	kept    time.Time // taken by nobody until then
	queue   []place
	over    map[driver.Owner]end
}

// place is a waiter's place in the queue. It lapses unless it is refreshed.
type place struct {
	owner  driver.Owner
	waiter *session
	ttl    time.Duration
	lapses time.Time
	token  int64 // for the fault that issues it too early
}

// end says how an owner ended.
type end int

const (
	released end = iota + 1
	expired
)

var nobody driver.Owner

func (s *store) record(key string) *record {
	if s.fault == keysFoldCase {
		key = strings.ToLower(key)
	}
	if s.fault == keysEndAtNUL {
		key, _, _ = strings.Cut(key, "\x00")
	}
	r := s.keys[key]
	if r == nil {
		r = &record{over: make(map[driver.Owner]end)}
		s.keys[key] = r
	}
	return r
}

// restart loses nothing that was acknowledged, unless by a fault.
func (s *store) restart() {
	if s.fault == leasesAreVolatile {
		s.wipe()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = 0
}

// wipe forgets everything.
func (s *store) wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = make(map[string]*record)
	s.last = 0
}

// settle writes down what time has done, and grants a free key to the first
// live waiter.
func (s *store) settle(r *record, now time.Time) {
	if r.owner != nobody && !now.Before(r.expiry) {
		r.over[r.owner] = expired
		r.owner, r.holder = nobody, nil
	}
	r.queue = slices.DeleteFunc(r.queue, func(p place) bool {
		if now.Before(p.lapses) || s.fault == placeNeverLapses {
			return false
		}
		r.over[p.owner] = expired
		return true
	})
	if r.owner != nobody || now.Before(r.kept) || len(r.queue) == 0 {
		return
	}
	if s.fault == placeNeverLapses { // and only who asks is granted
		p := r.queue[0]
		p.waiter.push(func() { p.waiter.wake(p.owner) })
		return
	}
	i := 0
	if s.fault == lastComeFirstServed {
		i = len(r.queue) - 1
	}
	p := r.queue[i]
	r.queue = slices.Delete(r.queue, i, i+1)
	if s.fault == handOverKeepsTheToken {
		p.token = r.token
	}
	s.grant(r, now, p.owner, p.waiter, p.ttl, p.token)
	p.waiter.push(func() { p.waiter.wake(p.owner) })
}

func (s *store) grant(r *record, now time.Time, o driver.Owner, holder *session, ttl time.Duration, token int64) {
	if token == 0 {
		token = s.issue(r, now)
	}
	r.owner, r.holder, r.token, r.granted, r.expiry = o, holder, token, now, now.Add(s.stored(ttl))
}

// stored is how long the store lets a lease of that TTL last.
func (s *store) stored(ttl time.Duration) time.Duration {
	if s.fault == ttlIsRoundedDown {
		return ttl.Truncate(time.Second)
	}
	if s.fault == shortTTLNeverEnds && ttl < time.Second {
		return time.Hour
	}
	return ttl
}

func (s *store) issue(r *record, now time.Time) int64 {
	if s.fault == tokensAreACounter {
		s.last++
		return s.last
	}
	r.issued = max(r.issued+1, now.UnixMicro())
	return r.issued
}

// draw issues a token without a lease, for the fault that does so.
func (s *store) draw(key string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issue(s.record(key), time.Now())
}

func (s *store) tellHolder(r *record) {
	if h, o := r.holder, r.owner; h != nil && s.fault != holderIsNotTold {
		h.push(func() { h.contended(o) })
	}
}

func (s *store) place(r *record, o driver.Owner) int {
	return slices.IndexFunc(r.queue, func(p place) bool { return p.owner == o })
}

// left is how long the key stays taken unless it is renewed or released.
func (s *store) left(r *record, now time.Time) time.Duration {
	if r.owner != nobody {
		return max(1, r.expiry.Sub(now))
	}
	return max(0, r.kept.Sub(now))
}

func (s *store) granted(r *record) reply {
	return reply{kind: grantedReply, token: r.token, contended: len(r.queue) > 0 && s.fault != grantHidesWaiters}
}
