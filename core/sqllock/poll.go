package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// startLoops starts the session's background goroutines.
func (s *session) startLoops() {
	s.Start(s.pollLoop)
	s.Start(s.sweepLoop)
	if s.notifications != nil {
		s.Start(s.listenLoop)
	}
}

// pollLoop polls the session's claims, as long as it has any, and refreshes its places.
func (s *session) pollLoop() {
	tick := time.NewTimer(0)
	defer tick.Stop()
	last, refreshed := time.Now(), time.Time{}
	pace := minPoll
	for {
		p := s.claims.beginPoll()
		ttl, nextExpiry := p.ttl, p.nextExpiry
		every := s.pollInterval
		if ttl > 0 { // somebody waits, and needs time for the request after the poll
			if p.asleep && s.notifications == nil {
				every = s.sleepInterval
			}
			every = min(every-every/4, ttl/4)
			switch hears, _ := s.hearing.get(); {
			case s.notifications == nil && !p.asleep:
				every = min(every, pace)
			case s.notifications != nil && hears == deaf:
				every = min(every, pace, defaultPoll)
			}
		}
		now := time.Now()
		next := last.Add(every)
		if told := driver.Later(last, p.heldSince).Add(s.pollInterval); !p.heldSince.IsZero() && told.Before(next) {
			next = told // a holder is to know that somebody waits
		}
		if soon := driver.Later(nextExpiry, last.Add(minPoll)); ttl > 0 && !nextExpiry.IsZero() && soon.Before(next) {
			next = soon // its holder may have died
		}
		switch left := next.Sub(now); {
		case !p.found:
			last = now
			tick.Stop()
		case left > 0:
			tick.Reset(left)
		default:
			last = now
			if ttl > 0 && now.Sub(refreshed) >= ttl/5 {
				refreshed = now
				s.refreshPlaces()
			}
			// Poll more often while a queue moves, but no more than a quarter of the
			// time, so that a busy server is not slowed down by polls.
			pace = pace * 3 / 2
			start := time.Now()
			if s.poll(p.version) {
				pace = minPoll
			}
			pace = min(max(pace, 4*time.Since(start)), s.pollInterval)
			continue
		}
		select {
		case <-tick.C:
		case <-s.claims.changed:
		case <-s.Closing:
			return
		}
	}
}

// refreshPlaces extends the session's places in the queue.
func (s *session) refreshPlaces() {
	_, _, _ = runAttempt(s.Ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) { // the next one is soon, and a poll finds a place that has expired
		_, err := s.exec(ctx, s.q.refresh, s.id[:])
		return struct{}{}, err
	})
}

// poll reads the session's claims in one statement. It wakes the waiters and informs the
// holders whose claims have changed, and reports whether a queue has moved.
func (s *session) poll(version uint64) (moved bool) {
	c := &s.claims
	c.mu.Lock()
	c.nextExpiry = time.Time{} // the answer sets it again; what is added meanwhile stays
	c.mu.Unlock()
	all, _, err := runAttempt(s.Ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (map[driver.Owner]polledClaim, error) {
		return s.selectClaims(ctx)
	})
	if err != nil {
		return false // the next one is soon
	}
	now := time.Now()
	var lost []driver.ID
	contended := make(map[driver.ID]bool)
	c.mu.Lock()
	for o, own := range c.byOwner {
		p, ok := all[o]
		if ok && !own.held && own.ahead != p.ahead {
			own.ahead, moved = p.ahead, true
		}
		switch {
		case ok && !own.held && (p.mayHold || p.state != waits):
			moved = true
			own.wake.Set()
		case ok && !own.held && p.ahead == 0 && p.firstExpiryIn > 0:
			c.expectExpiry(now.Add(p.firstExpiryIn + time.Millisecond))
		case ok && own.held && p.state == holds && own.version <= version:
			waiting := p.ahead > 0
			if waiting != own.contended || p.askedAt > own.askedAt {
				contended[own.id] = waiting || p.askedAt > own.askedAt
				own.contended, own.askedAt = waiting, max(own.askedAt, p.askedAt)
			}
		case ok || own.version > version:
		case !own.held:
			own.wake.Set() // its place has expired; its next request finds out
		case own.releaseAskedAt.IsZero():
			c.forgetLocked(o)
			lost = append(lost, own.id)
		}
	}
	c.mu.Unlock()
	for id, waiting := range contended {
		if waiting {
			s.takeBaton(id.Owner)
		}
		s.sink.Contended(id, waiting)
	}
	for _, id := range lost {
		s.batons.drop(id.Owner)
		s.sink.Lost(id, errTaken)
	}
	return moved
}

// polledClaim is what a poll has found out about a claim.
type polledClaim struct {
	id      driver.ID
	state   claimState
	askedAt int64
	ahead   int64 // how many wait before it, or for its lease
	mayHold bool  // it waits, and the key is free for it

	// firstExpiryIn is how long until the first of the key's leases ends; 0 if there is none.
	firstExpiryIn time.Duration
}

func (s *session) selectClaims(ctx context.Context) (map[driver.Owner]polledClaim, error) {
	all := make(map[driver.Owner]polledClaim)
	err := s.query(ctx, func(rows *sql.Rows) error {
		var key, owner []byte
		var state, room, holders, minRoom, expiresIn int64
		var p polledClaim
		if err := rows.Scan(&key, &owner, &state, &room, &p.askedAt, &p.ahead, &holders, &minRoom, &expiresIn); err != nil {
			return err
		}
		p.id, p.state = newID(key, owner), claimState(state)
		p.firstExpiryIn = micros(expiresIn)
		p.mayHold = p.ahead == 0 && (minRoom == 0 || holders < minRoom) && (room == 0 || holders < room)
		all[p.id.Owner] = p
		return nil
	}, s.q.poll, s.id[:])
	return all, err
}
