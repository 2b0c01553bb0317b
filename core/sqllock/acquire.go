package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Acquire requests a lease, and waits for it if r.Wait is set.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	if err := checkRequest(r); err != nil {
		s.endLeftovers(r, false)
		return driver.Grant{}, err
	}
	s.startOnce.Do(s.startLoops)
	g, clean, err := s.acquire(ctx, &r)
	if err != nil {
		s.claims.forget(r.Owner)
		s.endLeftovers(r, !clean)
	}
	return g, err
}

func checkRequest(r driver.Request) error {
	switch {
	case r.Mode > driver.Semaphore:
		return &driver.PermanentError{Err: fmt.Errorf("sql: mode %d is not offered", r.Mode)}
	case r.Mode == driver.Semaphore && r.Limit < 1:
		return &driver.PermanentError{Err: fmt.Errorf("sql: a semaphore with a limit of %d; at least 1 is needed", r.Limit)}
	case r.TTL < minTTL:
		return &driver.PermanentError{Err: fmt.Errorf("sql: a TTL of %v is too short; use at least %v", r.TTL, minTTL)}
	case r.Key == "" || len(r.Key) > MaxKeyLength:
		return &driver.PermanentError{Err: fmt.Errorf("sql: a key of %d bytes; use 1 to %d", len(r.Key), MaxKeyLength)}
	case r.Replace != nil && r.Replace.Key != r.Key:
		return &driver.PermanentError{Err: errors.New("sql: the lease to replace is of another key")}
	}
	return nil
}

// acquire requests a lease, and waits until it is granted or refused. If err is not nil,
// clean reports whether the request has certainly left nothing in the database. r.Replace is
// nil once that lease has ended.
func (s *session) acquire(ctx context.Context, r *driver.Request) (g driver.Grant, clean bool, err error) {
	// A request that may wait is repeated if the key's row was locked during a whole
	// attempt: neither database grants row locks in a strict order.
	const attempts = 3
	var a answer
	clean = true
	for n := 1; ; n++ {
		var unchanged bool
		a, unchanged, err = s.acquireOnce(ctx, *r, true)
		clean = clean && unchanged
		silent := new(kit.SilenceError)
		if err == nil || !r.Wait || n == attempts || !errors.As(err, &silent) {
			break
		}
	}
	if err != nil {
		return driver.Grant{}, clean, err
	}
	if r.Replace != nil {
		s.claims.forget(r.Replace.Owner)
		r.Replace = nil
	}
	if a.outcome == queued {
		place := s.claims.addPlace(r.ID, placeTTL(r.TTL), a.sentAt.Add(a.remaining))
		driver.TakenBy(s.sink, r.ID, a.holder)
		s.sink.Waiting(r.ID)
		for a.outcome == queued {
			select {
			case <-place.wake:
			case <-ctx.Done():
				return driver.Grant{}, false, ctx.Err()
			case <-s.Closing:
				return driver.Grant{}, false, driver.ErrClosed
			}
			if a, err = s.recheck(ctx, *r); err != nil {
				return driver.Grant{}, false, err
			}
			driver.TakenBy(s.sink, r.ID, a.holder)
		}
	}
	switch a.outcome {
	case busy:
		return driver.Grant{}, true, &driver.HeldError{RetryAfter: a.remaining, Holder: a.holder}
	case placeLost:
		return driver.Grant{}, true, driver.ErrPlaceLost
	}
	g = driver.Grant{ID: r.ID, Token: a.token, Deadline: driver.Deadline(a.sentAt, r.TTL), Contended: a.contended}
	s.claims.addLease(g, a.serverTime)
	return g, false, nil
}

// recheck is called when a waiter was woken. If the waiter was granted its lease, recheck
// extends it; otherwise it requests the lease again. If the server cannot be reached the
// waiter stays queued: its place may still be there.
func (s *session) recheck(ctx context.Context, r driver.Request) (answer, error) {
	ext, err := s.extend(ctx, driver.Renewal{ID: r.ID, TTL: r.TTL})
	if l, ok := ext.leases[r.ID]; ok && err == nil {
		return answer{outcome: granted, token: l.token, sentAt: ext.sentAt, serverTime: l.grantedAt, contended: l.contended}, nil
	}
	var a answer
	if err == nil {
		a, _, err = s.acquireOnce(ctx, r, false)
	}
	switch {
	case err == nil:
		return a, nil
	case ctx.Err() != nil:
		return a, ctx.Err()
	case s.Open.Err() != nil:
		return a, driver.ErrClosed
	case kit.Refused(err):
		return a, err
	}
	return answer{outcome: queued}, nil
}

// acquireOnce requests a lease in one decision. Without create it takes no key and no new
// place: it only returns what the owner already has.
func (s *session) acquireOnce(ctx context.Context, r driver.Request, create bool) (answer, bool, error) {
	alone := create && r.Replace == nil && !s.claims.crowded.Was(r.Key)
	tries := &kit.Tries{Tell: func(err error) { driver.Failed(s.sink, r.ID, err) }}
	return runTries(ctx, s, s.Closing, tries, func(ctx context.Context, at *attempt) (a answer, err error) {
		if alone {
			if a, ok, err := s.takeFree(ctx, at, r); ok || err != nil {
				return a, err
			}
			alone = false
		}
		err = s.decide(ctx, at, r.Key, func(d *decision) error {
			if r.Replace != nil {
				if _, err := d.endOwner(r.Replace.Owner, 0); err != nil {
					return err
				}
			}
			a = answer{sentAt: d.sentAt, serverTime: d.now}
			if a.outcome, err = d.acquire(r, create); err != nil {
				return err
			}
			if c := d.claimOf(r.Owner); c != nil {
				a.token = c.token
			}
			if a.outcome == queued || a.outcome == busy {
				a.holder = d.taker()
			}
			a.contended = d.countWaiting() > 0
			s.claims.crowded.Note(r.Key, len(d.claims) > 1 || a.outcome != granted)
			if end := d.firstExpiry(); end > 0 {
				a.remaining = micros(end - d.now)
			}
			return nil
		})
		return a, err
	})
}

// acquire grants the owner a lease or a place in the queue, or refuses it.
func (d *decision) acquire(r driver.Request, create bool) (outcome, error) {
	ttl := r.TTL.Microseconds()
	c := d.claimOf(r.Owner)
	switch {
	case d.isEnded(r.Owner), c != nil && c.state == kept, c == nil && !create:
		return placeLost, nil

	case c != nil && c.state == holds:
		c.expiresAt, c.ttl = max(c.expiresAt, d.now+ttl), max(c.ttl, ttl)
		return granted, d.exec(d.q.extend, c.expiresAt, c.ttl, []byte(d.key), r.Owner[:])

	case c != nil && d.head() == c && d.fits(c.room):
		return granted, d.grantPlace(c, d.now+ttl, ttl)

	case c != nil:
		c.expiresAt = max(c.expiresAt, d.now+c.ttl)
		return queued, d.exec(d.q.extend, c.expiresAt, c.ttl, []byte(d.key), r.Owner[:])
	}

	added := claim{owner: r.Owner, room: room(r.Mode, r.Limit), from: driver.Origin{Identity: d.s.identity, Trace: r.Trace}}
	switch queueEmpty := d.head() == nil; {
	case queueEmpty && d.fits(added.room):
		added.state, added.turn, added.token = holds, noTurn, d.nextToken()
		added.grantedAt, added.expiresAt, added.ttl = d.now, d.now+ttl, ttl
		return granted, d.insertClaim(added)
	case !r.Wait:
		return busy, d.reportBusy()
	default:
		ttl = placeTTL(r.TTL).Microseconds()
		added.state, added.turn, added.expiresAt, added.ttl = waits, d.lastTurn()+1, d.now+ttl, ttl
		d.contended = queueEmpty
		return queued, d.insertClaim(added)
	}
}

// reportBusy tells the holders that a request which does not wait has found the key taken.
// It does so every 20 ms at most.
func (d *decision) reportBusy() error {
	const interval = int64(20 * time.Millisecond / time.Microsecond)
	var lastGrant int64
	for i := range d.claims {
		lastGrant = max(lastGrant, d.claims[i].grantedAt)
	}
	if d.askedAt <= lastGrant || d.now-d.askedAt > interval {
		d.askedAt, d.rowChanged, d.contended = d.now, true, true
	}
	return nil
}

// endLeftovers cleans up after a request that failed. It ends the lease that was to be
// replaced, and the owner if the request may have left a claim.
func (s *session) endLeftovers(r driver.Request, mayHaveClaim bool) {
	if mayHaveClaim {
		s.endLater(r.ID, 0, r.TTL)
	}
	if r.Replace != nil {
		s.claims.forget(r.Replace.Owner)
		s.endLater(r.Replace.ID, 0, max(time.Until(r.Replace.Deadline), r.TTL))
	}
}
