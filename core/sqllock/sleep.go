package sqllock

import (
	"context"
	"database/sql"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// napTime is how long a GET_LOCK waits. It is in the statement, too.
const napTime = time.Second

// maySleep reports whether there is a sleeper for one more place.
func (s *session) maySleep() bool {
	b := &s.batons
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.off && (b.idle > 0 || b.sleepers < s.mayPin()-1)
}

// startSleeper has somebody sleep for a place that was added, if there may be one more. It reports
// whether there is.
func (s *session) startSleeper() bool {
	b := &s.batons
	most := s.mayPin() - 1
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.off:
		return false
	case b.idle > 0:
		b.idle--
		b.more <- struct{}{}
		return true
	case b.sleepers >= most:
		return false
	}
	b.sleepers++
	if !s.Start(s.sleep) {
		b.sleepers--
		return false
	}
	return true
}

// sleeper is a connection on which waiters sleep, one after the other.
type sleeper struct {
	*session
	conn *sql.Conn
	troubles
}

// sleep sleeps for one place after the other.
func (s *session) sleep() {
	z := &sleeper{session: s}
	b := &s.batons
	defer func() {
		if z.conn != nil {
			closeConn(z.conn, false)
		}
	}()
	for {
		if place := s.claims.nextToSleep(); place != nil {
			z.sleepFor(place)
			continue
		}
		b.mu.Lock()
		b.idle++
		b.mu.Unlock()
		idle := time.NewTimer(batonLinger)
		select {
		case <-b.more:
			idle.Stop()
			continue // who has set it has counted one less
		case <-idle.C:
		case <-s.Closing:
			idle.Stop()
		}
		b.mu.Lock()
		if b.idle > 0 {
			b.idle--
			b.sleepers--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock() // it was woken at the same time
		<-b.more
	}
}

// sleepFor sleeps until the place has been left.
func (z *sleeper) sleepFor(place *ownClaim) {
	c := &z.claims
	var last driver.Owner
	for early := 0; ; {
		before, sure, left := c.sleepsBehind(place)
		switch {
		case left:
			return
		case before != last:
			last, early = before, 0
			c.setAsleep(place, sure)
		}
		if before == (driver.Owner{}) || z.isOff() {
			c.setAsleep(place, false)
			z.await(place, batonLinger)
			continue
		}
		if early > 0 {
			if early > 2 {
				c.setAsleep(place, false)
			}
			if z.await(place, min(time.Millisecond<<early, defaultPoll)) {
				continue
			}
		}
		switch z.nap(before) {
		case overslept:
			early = 0
			c.setAsleep(place, sure)
		case woken:
			early = 1
			z.wake(place)
		case untaken: // it has ended already, or its session has not taken the baton, perhaps not yet
			if early = min(early+1, 10); early == 1 {
				z.wake(place)
			}
		case failed:
			c.setAsleep(place, false)
			z.await(place, batonCheck)
		}
		if z.Ctx.Err() != nil {
			return
		}
	}
}

// await waits until a decision or the end of the place is told. It reports whether one was.
func (z *sleeper) await(place *ownClaim, most time.Duration) bool {
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-place.told:
		return true
	case <-limit.C:
	case <-z.Ctx.Done():
	}
	return false
}

// wake has the waiter ask, and waits for what it is told.
func (z *sleeper) wake(place *ownClaim) {
	select {
	case <-place.told:
	default:
	}
	if _, _, left := z.claims.sleepsBehind(place); left {
		return
	}
	place.wake.Set()
	z.await(place, z.timeout)
}

// nap is how a GET_LOCK has ended.
type nap uint8

const (
	overslept nap = iota // it has waited in vain
	woken                // the baton was released
	untaken              // nobody had the baton
	failed
)

// nap sleeps until an owner's baton is released. Nobody has it afterwards.
func (z *sleeper) nap(before driver.Owner) nap {
	if z.conn != nil && z.crammed() {
		closeConn(z.conn, false)
		z.conn = nil
		return failed
	}
	if z.conn == nil {
		if z.conn = z.pin(); z.conn == nil {
			return failed
		}
	}
	ctx, cancel := context.WithTimeout(z.Ctx, napTime+z.timeout)
	defer cancel()
	name := nameOf(before)
	var wasFree, got, released sql.NullInt64
	err := z.conn.QueryRowContext(ctx, z.d.words("SELECT IS_FREE_LOCK("+name+"), GET_LOCK("+name+", 1), RELEASE_LOCK("+name+"){all}")).Scan(&wasFree, &got, &released)
	z.answered(z.session, err)
	switch {
	case err != nil || !got.Valid:
		closeConn(z.conn, true)
		z.conn = nil
		return failed
	case got.Int64 == 0:
		return overslept
	case wasFree.Int64 == 1:
		return untaken
	}
	return woken
}

func (s *session) isOff() bool {
	s.batons.mu.Lock()
	defer s.batons.mu.Unlock()
	return s.batons.off
}
