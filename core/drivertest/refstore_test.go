package drivertest_test

import (
	"cmp"
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

	topics map[string]map[*session]*driver.Listener
}

// record is what the store knows about a key.
type record struct {
	holders []*holder
	token   int64 // of the latest grant
	issued  int64 // the last token given to anybody, for faults
	queue   []place
	over    map[driver.Owner]end
	named   driver.Origin // of the latest grants that had an identity, or a trace
}

// holder is one lease of a key.
type holder struct {
	owner   driver.Owner // zero if it is kept, by nobody
	session *session     // whom to tell
	mode    driver.Mode
	limit   int
	token   int64
	granted time.Time
	expiry  time.Time
	waited  bool // for the grant, which is short for that: by a fault
	driver.Origin
}

// place is a waiter's place in the queue. It lapses unless it is refreshed.
type place struct {
	ask
	lapses time.Time
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

// wipe forgets everything. It takes a moment, as it does everywhere.
func (s *store) wipe() {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = make(map[string]*record)
	s.last = 0
}

// settle writes down what time has done, and grants the room that there is to the
// first live waiters.
func (s *store) settle(r *record, now time.Time) {
	r.holders = slices.DeleteFunc(r.holders, func(h *holder) bool {
		if now.Before(h.expiry) {
			return false
		}
		if h.owner != nobody {
			r.over[h.owner] = expired
		}
		return true
	})
	r.queue = slices.DeleteFunc(r.queue, func(p place) bool {
		if now.Before(p.lapses) || s.fault == placeNeverLapses {
			return false
		}
		r.over[p.Owner] = expired
		return true
	})
	for len(r.queue) > 0 {
		i := 0
		switch {
		case s.fault == lastComeFirstServed:
			i = len(r.queue) - 1
		case s.fault == sessionsAreServedInTurn:
			i = s.sameSession(r)
		}
		p := r.queue[i]
		if !s.fits(r, p.ask) || s.fault == oneIsLetInAtATime && len(r.holders) > 0 {
			return
		}
		if s.fault == placeNeverLapses { // and only who asks is granted
			p.from.push(func() { p.from.wake(p.Owner) })
			return
		}
		r.queue = slices.Delete(r.queue, i, i+1)
		if s.fault == handOverKeepsTheToken {
			p.token = r.token
		}
		s.grant(r, now, p.ask)
		if s.fault == renewalIsOfThePlace {
			h := r.heldBy(p.Owner)
			h.waited, h.expiry = true, now.Add(min(p.TTL, 3*referenceWake))
		}
		p.from.push(func() { p.from.wake(p.Owner) })
	}
}

// sameSession is a later place of the session that is first, if it has one.
func (s *store) sameSession(r *record) int {
	return max(0, slices.IndexFunc(r.queue, func(p place) bool { return p.from == r.queue[0].from && p.Owner != r.queue[0].Owner }))
}

// fits reports whether there is room for one more lease: in its own eyes, and in
// those of all that are there.
func (s *store) fits(r *record, a ask) bool {
	n := len(r.holders)
	if n > 0 && s.fault == sharesAreExclusive {
		return false
	}
	if room := room(a.Mode, a.Limit); room > 0 && n >= room && s.fault != ownRoomIsIgnored {
		return false
	}
	for _, h := range r.holders {
		if room := room(h.mode, h.limit); room > 0 && n >= room && (s.fault != holdersRoomIsIgnored || h.mode == driver.Exclusive && a.Mode == driver.Exclusive) {
			return false
		}
	}
	return true
}

// room is how many may hold together; 0 is any number.
func room(m driver.Mode, limit int) int {
	switch m {
	case driver.Exclusive:
		return 1
	case driver.Semaphore:
		return limit
	}
	return 0
}

func (s *store) grant(r *record, now time.Time, a ask) {
	token := a.token
	if token == 0 {
		token = s.issue(r, now)
	}
	if s.fault == grantExtendsAll {
		for _, h := range r.holders {
			s.extend(h, now, a.TTL)
		}
	}
	r.token = token
	r.holders = append(r.holders, &holder{owner: a.Owner, session: a.from, mode: a.Mode, limit: a.Limit, token: token, granted: now, expiry: now.Add(s.stored(a.TTL)), Origin: s.origin(r, a)})
}

// origin is where a lease comes from.
func (s *store) origin(r *record, a ask) driver.Origin {
	o := driver.Origin{Trace: a.Trace}
	if a.from != nil {
		o.Identity = a.from.identity
	}
	switch {
	case s.fault == holderIsTheFirstEver && r.named.Known():
		o = r.named
	case s.fault == tracesStay && o.Trace == nil:
		o.Trace = r.named.Trace
	case s.fault == tracesAreIgnored:
		o.Trace = nil
	}
	if o.Known() {
		r.named = driver.Origin{Identity: o.Identity, Trace: cmp.Or(o.Trace, r.named.Trace)}
	}
	return o
}

// taker is who holds the key, or one of those who do.
func (s *store) taker(r *record) driver.Origin {
	if len(r.holders) == 0 {
		return driver.Origin{}
	}
	return r.holders[0].Origin
}

// heldBy returns the lease of an owner, or nil.
func (r *record) heldBy(o driver.Owner) *holder {
	for _, h := range r.holders {
		if h.owner == o && o != nobody {
			return h
		}
	}
	return nil
}

// part removes a lease.
func (r *record) part(h *holder) {
	r.holders = slices.DeleteFunc(r.holders, func(other *holder) bool { return other == h })
}

// stored is how long the store lets a lease of that TTL last.
func (s *store) stored(ttl time.Duration) time.Duration {
	if s.fault == ttlIsRoundedDown {
		return ttl.Truncate(time.Second)
	}
	if s.fault == lostReplyLeavesAGhost {
		return ttl + 10*time.Second
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

func (s *store) tellHolders(r *record) {
	for _, h := range r.holders {
		if h.session != nil && s.fault != holderIsNotTold {
			h.session.push(func() { h.session.contended(h.owner) })
		}
	}
}

func (s *store) place(r *record, o driver.Owner) int {
	return slices.IndexFunc(r.queue, func(p place) bool { return p.Owner == o })
}

// left is how long it takes at most until one of the leases ends that are there,
// unless that is renewed; 0 if there is none.
func (s *store) left(r *record, now time.Time) time.Duration {
	var left time.Duration
	for _, h := range r.holders {
		if l := max(1, h.expiry.Sub(now)); left == 0 || l < left {
			left = l
		}
	}
	return left
}

func (s *store) granted(r *record, h *holder) reply {
	return reply{kind: grantedReply, token: h.token, contended: len(r.queue) > 0 && s.fault != grantHidesWaiters}
}
