package drivertest_test

import (
	"slices"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// reply answers an ask.
type reply struct {
	kind      replyKind
	token     int64
	remaining time.Duration // of the present lease
	contended bool
}

type replyKind int

const (
	grantedReply replyKind = iota
	queuedReply
	busyReply
	overReply
)

type ask struct {
	driver.Request
	from   *session
	create bool  // the first ask of its owner, which may start something
	token  int64 // drawn before, by a fault
}

// ask is acquire: it may be repeated, and arrive late.
func (s *store) ask(a ask) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now(), s.record(a.Key)
	if s.fault == newcomersOvertake && a.create && s.left(r, now) == 0 {
		s.grant(r, now, a.Owner, a.from, a.TTL, a.token)
	}
	s.settle(r, now)
	if a.Replace != nil && r.owner != a.Owner {
		if _, over := r.over[a.Owner]; !over {
			if done := s.replace(r, now, a); done {
				return s.granted(r)
			}
		}
	}
	switch {
	case r.owner == a.Owner && (a.create && s.fault == acquireForgetsItsOwner):
		return reply{kind: busyReply, remaining: r.expiry.Sub(now)}
	case r.owner == a.Owner && (a.create && s.fault == acquireGrantsAnew):
		s.grant(r, now, a.Owner, a.from, a.TTL, 0)
		return s.granted(r)
	case r.owner == a.Owner:
		r.expiry = driver.Later(r.expiry, now.Add(s.stored(a.TTL)))
		return s.granted(r)
	}
	if how := r.over[a.Owner]; how != 0 && !(s.fault == releasedOwnerLivesAgain && how == released) && !(s.fault == expiredOwnerLivesAgain && how == expired) {
		return reply{kind: overReply}
	}
	if i := s.place(r, a.Owner); i >= 0 {
		if i == 0 && s.fault == placeNeverLapses && s.left(r, now) == 0 {
			r.queue = r.queue[1:]
			s.grant(r, now, a.Owner, a.from, a.TTL, 0)
			return s.granted(r)
		}
		if s.fault != placeIsNotRefreshed {
			r.queue[i].lapses = now.Add(a.TTL)
		}
		if i == 0 {
			s.tellHolder(r)
		}
		return reply{kind: queuedReply, remaining: s.left(r, now)}
	}
	if !a.create {
		return reply{kind: overReply}
	}
	if s.left(r, now) == 0 && len(r.queue) == 0 {
		s.grant(r, now, a.Owner, a.from, a.TTL, a.token)
		return s.granted(r)
	}
	if !a.Wait && s.fault != everybodyWaits {
		return reply{kind: busyReply, remaining: s.left(r, now)}
	}
	s.enqueue(r, now, a)
	return reply{kind: queuedReply, remaining: s.left(r, now)}
}

// replace ends the replaced lease and reports whether the key went to a.
func (s *store) replace(r *record, now time.Time, a ask) bool {
	old := a.Replace.Owner
	mine := r.owner == old
	if s.fault == replaceDoesNotCompare && r.owner != nobody {
		mine = true
	}
	if s.fault == replaceLeavesTheOld {
		return false
	}
	if _, over := r.over[old]; !over {
		r.over[old] = released
	}
	if !mine {
		return false
	}
	r.owner, r.holder = nobody, nil
	if len(r.queue) == 0 || s.fault == replaceIgnoresTheQueue {
		token := int64(0)
		if s.fault == replaceKeepsTheToken {
			token = r.token
		}
		s.grant(r, now, a.Owner, a.from, a.TTL, token)
		return true
	}
	s.settle(r, now)
	return false
}

func (s *store) enqueue(r *record, now time.Time, a ask) {
	p := place{owner: a.Owner, waiter: a.from, ttl: a.TTL, lapses: now.Add(a.TTL), token: a.token}
	if s.fault == tokenAtEnrolment {
		p.token = s.issue(r, now)
		r.token = p.token
	}
	r.queue = append(r.queue, p)
	if len(r.queue) == 1 {
		s.tellHolder(r)
	}
}

// end is release and withdrawal: afterwards the owner has nothing and never
// will have. It reports whether the owner had ended before by expiry, or was
// never known.
func (s *store) end(e driver.Ending) (notHeld bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now(), s.record(e.Key)
	s.settle(r, now)
	how := r.over[e.Owner]
	mine := r.owner == e.Owner
	if s.fault == releaseDoesNotCompare && r.owner != nobody {
		mine = true
	}
	switch {
	case mine:
		r.owner, r.holder = nobody, nil
		if s.fault != keepIsIgnored {
			r.kept = r.granted.Add(e.Keep)
		}
		if s.fault == keepCountsFromTheRelease && e.Keep > 0 {
			r.kept = now.Add(e.Keep)
		}
		if s.fault == keepEndsWithTheTTL && r.kept.After(r.expiry) {
			r.kept = r.expiry
		}
	case how == released && s.fault == repeatedReleaseIsNotHeld:
		notHeld = true
	case how != released && s.fault != lateReleaseIsNoError:
		notHeld = true
	}
	if i := s.place(r, e.Owner); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
	}
	switch {
	case how != 0 || notHeld && s.fault == givenUpIsNotBurnt:
	case notHeld:
		r.over[e.Owner] = expired
	default:
		r.over[e.Owner] = released
	}
	if s.fault != newcomersOvertake {
		s.settle(r, now)
	}
	return notHeld
}

// renew extends a lease that is held.
func (s *store) renew(n driver.Renewal) (held, contended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now(), s.record(n.Key)
	s.settle(r, now)
	if r.owner != n.Owner {
		if s.fault == renewalCreates && r.owner == nobody {
			s.grant(r, now, n.Owner, nil, n.TTL, n.Token)
			return true, false
		}
		if s.fault == renewalDoesNotCompare && r.owner != nobody {
			r.expiry = driver.Later(r.expiry, now.Add(n.TTL))
			return true, false
		}
		return false, false
	}
	next := now.Add(s.stored(n.TTL))
	if s.fault != renewalShortens {
		next = driver.Later(r.expiry, next)
	}
	if s.fault == renewalDoesNothing {
		next = r.expiry
	}
	r.expiry = next
	return true, len(r.queue) > 0 && s.fault != renewalHidesWaiters
}

func (s *store) inspect(key string) driver.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now(), s.record(key)
	left := s.left(r, now)
	if r.owner != nobody && !now.Before(r.expiry) {
		left = 0
	}
	live := 0
	for _, p := range r.queue {
		if now.Before(p.lapses) {
			live++
		}
	}
	return driver.State{Held: left > 0, Token: r.token, Remaining: left, Waiting: live}
}

// askUnguarded looks whether a key is free, and takes it a moment later.
func (s *store) askUnguarded(a ask) reply {
	s.mu.Lock()
	now, r := time.Now(), s.record(a.Key)
	s.settle(r, now)
	free := s.left(r, now) == 0
	s.mu.Unlock()
	if !free || !a.create {
		return s.ask(a)
	}
	<-time.After(2 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant(r, time.Now(), a.Owner, a.from, a.TTL, 0)
	return s.granted(r)
}

// leave takes an owner out of the queue only.
func (s *store) leave(id driver.ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.record(id.Key)
	if i := s.place(r, id.Owner); i >= 0 {
		r.queue = slices.Delete(r.queue, i, i+1)
	}
}
