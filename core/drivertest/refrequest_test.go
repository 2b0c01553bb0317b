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
	full      bool          // a busyReply: there is no room in the queue
	remaining time.Duration // of the present lease
	contended bool
	holder    driver.Origin // of a key that is taken
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
	if s.fault == newcomersOvertake && a.create && len(r.live(now)) == 0 {
		s.grant(r, now, a)
	}
	s.settle(r, now)
	if a.After != nil && a.create && s.fault != afterIsIgnored {
		if h := r.heldBy(a.After.Owner); h != nil {
			r.part(h)
			if s.fault != afterHidesTheRelease {
				r.over[a.After.Owner] = released
			} else {
				r.over[a.After.Owner] = expired
			}
			s.settle(r, now)
		} else if s.fault == afterForgivesALoss {
			r.over[a.After.Owner] = released
		}
	}
	if a.Replace != nil && r.heldBy(a.Owner) == nil {
		if _, over := r.over[a.Owner]; !over && s.replace(r, now, a) {
			return s.granted(r, r.heldBy(a.Owner))
		}
	}
	if h := r.heldBy(a.Owner); h != nil {
		switch {
		case a.create && s.fault == acquireForgetsItsOwner:
			return reply{kind: busyReply, remaining: s.left(r, now), holder: s.taker(r)}
		case a.create && s.fault == acquireGrantsAnew:
			r.part(h)
			s.grant(r, now, a)
			return s.granted(r, r.heldBy(a.Owner))
		}
		if !h.waited {
			h.expiry = driver.Later(h.expiry, now.Add(s.stored(a.TTL)))
		}
		return s.granted(r, h)
	}
	if how := r.over[a.Owner]; how != 0 && !(s.fault == releasedOwnerLivesAgain && how == released) && !(s.fault == expiredOwnerLivesAgain && how == expired) {
		return reply{kind: overReply}
	}
	if i := s.place(r, a.Owner); i >= 0 {
		if a.create && s.fault == boundRefusesItsOwn && s.full(r, a) {
			return reply{kind: busyReply, full: true}
		}
		if i == 0 && s.fault == placeNeverLapses && s.fits(r, a) {
			r.queue = r.queue[1:]
			s.grant(r, now, a)
			return s.granted(r, r.heldBy(a.Owner))
		}
		if s.fault != placeIsNotRefreshed {
			r.queue[i].lapses = now.Add(a.TTL)
		}
		if i == 0 {
			s.tellHolders(r)
		}
		return reply{kind: queuedReply, remaining: s.left(r, now), holder: s.taker(r)}
	}
	if !a.create {
		return reply{kind: overReply}
	}
	if s.fits(r, a) && (len(r.queue) == 0 || s.fault == sharersPassTheQueue && a.Mode == driver.Shared) {
		s.grant(r, now, a)
		return s.granted(r, r.heldBy(a.Owner))
	}
	if !a.Wait && s.fault != everybodyWaits {
		if s.fault != onlyWaitersAreTold {
			s.tellHolders(r)
		}
		return reply{kind: busyReply, remaining: s.left(r, now), holder: s.taker(r)}
	}
	if s.full(r, a) {
		return reply{kind: busyReply, full: true, remaining: s.left(r, now), holder: s.taker(r)}
	}
	s.enqueue(r, now, a)
	return reply{kind: queuedReply, remaining: s.left(r, now), holder: s.taker(r)}
}

// full reports whether there is no room in the queue for a request.
func (s *store) full(r *record, a ask) bool {
	before := len(r.queue)
	if s.fault == boundCountsHolders {
		before += max(len(r.holders)-1, 0)
	}
	return a.MaxWaiting > 0 && before >= a.MaxWaiting && s.fault != boundIsIgnored
}

// live is the leases that are not over.
func (r *record) live(now time.Time) (live []*holder) {
	for _, h := range r.holders {
		if now.Before(h.expiry) {
			live = append(live, h)
		}
	}
	return live
}

// replace ends the replaced lease and reports whether a has a lease now.
func (s *store) replace(r *record, now time.Time, a ask) bool {
	old := a.Replace.Owner
	h := r.heldBy(old)
	if s.fault == replaceDoesNotCompare && len(r.holders) > 0 {
		h = r.holders[0]
	}
	if s.fault == replaceLeavesTheOld {
		return false
	}
	if _, over := r.over[old]; !over {
		r.over[old] = released
	}
	if h == nil {
		return false
	}
	r.part(h)
	if s.fits(r, a) && (len(r.queue) == 0 || s.fault == replaceIgnoresTheQueue) {
		if s.fault == replaceKeepsTheToken {
			a.token = r.token
		}
		s.grant(r, now, a)
		return true
	}
	s.settle(r, now)
	return false
}

func (s *store) enqueue(r *record, now time.Time, a ask) {
	if s.fault == tokenAtPlace {
		a.token = s.issue(r, now)
		r.token = a.token
	}
	if s.fault == tokenAtAWritersPlace && a.Mode == driver.Exclusive {
		a.token = s.issue(r, now)
	}
	r.queue = append(r.queue, place{ask: a, lapses: now.Add(a.TTL)})
	if len(r.queue) == 1 {
		s.tellHolders(r)
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
	h := r.heldBy(e.Owner)
	if s.fault == releaseDoesNotCompare && len(r.holders) > 0 {
		h = r.holders[0]
	}
	switch {
	case h != nil:
		s.finish(r, h, now, e.Keep)
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

// finish ends a lease, or leaves it to nobody for as long as it is to be kept.
func (s *store) finish(r *record, h *holder, now time.Time, keep time.Duration) {
	kept := h.granted.Add(keep)
	switch {
	case s.fault == releaseEndsAll:
		r.holders = nil
		return
	case keep == 0, s.fault == keepIsIgnored, s.fault == keepFreesAPermit && h.mode == driver.Semaphore:
		r.part(h)
		return
	case s.fault == keepCountsFromTheRelease:
		kept = now.Add(keep)
	case s.fault == keepEndsWithTheTTL && kept.After(h.expiry):
		kept = h.expiry
	}
	h.owner, h.session, h.expiry = nobody, nil, kept
	if s.fault != keptKeyIsTheHolders {
		h.Origin = driver.Origin{}
	}
}

// renew extends a lease that is held.
func (s *store) renew(n driver.Renewal) (held, contended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now(), s.record(n.Key)
	s.settle(r, now)
	h := r.heldBy(n.Owner)
	if h == nil {
		switch {
		case s.fault == renewalCreates && len(r.holders) == 0:
			s.grant(r, now, ask{Request: driver.Request{ID: n.ID, TTL: n.TTL}, token: n.Token})
			return true, false
		case s.fault == renewalDoesNotCompare && len(r.holders) > 0:
			h = r.holders[0]
			h.expiry = driver.Later(h.expiry, now.Add(n.TTL))
			return true, false
		case s.fault == loweringCreates && n.Share:
			s.grant(r, now, ask{Request: driver.Request{ID: n.ID, TTL: n.TTL, Mode: driver.Shared}, token: n.Token})
			return true, false
		}
		return false, false
	}
	for _, other := range r.holders {
		if other == h || s.fault == renewalExtendsAll {
			s.extend(other, now, n.TTL)
		}
	}
	if n.Share && h.mode == driver.Exclusive {
		s.lower(r, h, now)
	}
	return true, len(r.queue) > 0 && s.fault != renewalHidesWaiters
}

func (s *store) extend(h *holder, now time.Time, ttl time.Duration) {
	if s.fault == renewalIsOfThePlace && h.waited {
		ttl = min(ttl, 3*referenceWake)
	}
	next := now.Add(s.stored(ttl))
	if s.fault != renewalShortens {
		next = driver.Later(h.expiry, next)
	}
	if s.fault != renewalDoesNothing {
		h.expiry = next
	}
}

// lower makes an exclusive lease a share and lets in who may share it.
func (s *store) lower(r *record, h *holder, now time.Time) {
	switch s.fault {
	case loweringDoesNothing:
	case loweringFreesTheKey:
		r.part(h)
		r.over[h.owner] = released
	default:
		h.mode = driver.Shared
	}
	s.settle(r, now)
}

func (s *store) inspect(key string) driver.State {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now(), s.record(key)
	st := driver.State{Token: r.token}
	for i, h := range r.live(now) {
		left := h.expiry.Sub(now)
		st.Held, st.Remaining = true, max(st.Remaining, left)
		mode := h.mode
		if s.fault == inspectHidesTheMode {
			mode = driver.Exclusive
		}
		from := h.Origin
		switch {
		case s.fault == holdersHaveOneName && i > 0:
			from.Identity = r.holders[0].Identity
		case s.fault == holdersHaveOneTrace:
			from.Trace = r.named.Trace
		}
		st.Holders = append(st.Holders, driver.Holder{Origin: from, Mode: mode, Limit: h.limit, Token: h.token, Since: h.granted, Remaining: left, Kept: h.owner == nobody})
	}
	for _, p := range r.queue {
		if now.Before(p.lapses) {
			st.Waiting++
		}
	}
	return st
}

// oust ends leases, whoever has them.
func (s *store) oust(key string, upTo int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, r := time.Now(), s.record(key)
	s.settle(r, now)
	for _, h := range slices.Clone(r.holders) {
		switch {
		case s.fault == oustDoesNothing, h.token > upTo && s.fault != oustEndsAll, h.token < upTo && s.fault == oustEndsTheLatest:
			continue
		case h.session != nil && s.fault != oustedIsNotTold:
			h.session.push(func() { h.session.ousted(h.owner) })
		}
		if h.owner != nobody && s.fault != oustedMayComeBack {
			r.over[h.owner] = expired
		}
		r.part(h)
	}
	s.settle(r, now)
}

// askUnguarded looks whether a key is free, and takes it a moment later.
func (s *store) askUnguarded(a ask) reply {
	s.mu.Lock()
	now, r := time.Now(), s.record(a.Key)
	s.settle(r, now)
	free := s.fits(r, a)
	s.mu.Unlock()
	if !free || !a.create {
		return s.ask(a)
	}
	<-time.After(2 * time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.grant(r, time.Now(), a)
	return s.granted(r, r.heldBy(a.Owner))
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
