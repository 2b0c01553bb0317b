package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// outcome is what a request for a lease has got.
type outcome uint8

const (
	granted outcome = iota + 1
	queued
	busy // it would not wait
	over // the owner has ended, or has lost its place
)

// answer is an outcome with what goes with it.
type answer struct {
	outcome outcome
	token   int64
	sent    time.Time     // before the request that set how long the lease lasts
	now     int64         // the server's time then
	others  bool          // somebody else waits
	left    time.Duration // of a key that is taken
}

// Acquire asks for a lease.
func (s *session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.Enter(); err != nil {
		return driver.Grant{}, err
	}
	defer s.Leave()
	if err := check(r); err != nil {
		s.dispose(r, false)
		return driver.Grant{}, err
	}
	s.started.Do(s.watchAndListen)
	g, clean, err := s.acquire(ctx, &r)
	if err != nil {
		s.claims.forget(r.Owner)
		s.dispose(r, !clean)
	}
	return g, err
}

// dispose cleans up after a request that failed: the owner, if it may have left something,
// and the lease that was to be replaced.
func (s *session) dispose(r driver.Request, left bool) {
	if left {
		s.owe(r.ID, 0, r.TTL)
	}
	if r.Replace != nil {
		s.claims.forget(r.Replace.Owner)
		s.owe(r.Replace.ID, 0, max(time.Until(r.Replace.Deadline), r.TTL))
	}
}

func check(r driver.Request) error {
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

// acquire asks, and asks again when told to, until the lease is granted or cannot be. clean
// says of an error that nothing of the request is left. r.Replace is nil once that lease has
// ended.
func (s *session) acquire(ctx context.Context, r *driver.Request) (g driver.Grant, clean bool, err error) {
	// Who may wait is not sent away because the key's row was in use for an attempt's
	// time: neither database hands a row's lock on in a strict order.
	const attempts = 3
	var a answer
	clean = true
	for n := 1; ; n++ {
		var unchanged bool
		a, unchanged, err = s.request(ctx, *r, true)
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
		place := s.claims.wait(r.ID, enrol(r.TTL), a.sent.Add(a.left))
		s.sink.Waiting(r.ID)
		for a.outcome == queued {
			select {
			case <-place.wake:
			case <-ctx.Done():
				return driver.Grant{}, false, ctx.Err()
			case <-s.Closing:
				return driver.Grant{}, false, driver.ErrClosed
			}
			if a, err = s.again(ctx, *r); err != nil {
				return driver.Grant{}, false, err
			}
		}
	}
	switch a.outcome {
	case busy:
		return driver.Grant{}, true, &driver.HeldError{RetryAfter: a.left}
	case over:
		return driver.Grant{}, true, driver.ErrPlaceLost
	}
	g = driver.Grant{ID: r.ID, Token: a.token, Deadline: driver.Deadline(a.sent, r.TTL), Contended: a.others}
	s.claims.hold(g, a.now)
	return g, false, nil
}

// again asks for one that waits, who has probably been granted its lease, or may be. It
// goes on waiting if the server cannot be reached: the place may be there yet.
func (s *session) again(ctx context.Context, r driver.Request) (answer, error) {
	f, err := s.askForMore(ctx, driver.Renewal{ID: r.ID, TTL: r.TTL})
	if l, ok := f.leases[r.ID]; ok && err == nil {
		return answer{outcome: granted, token: l.token, sent: f.sent, now: l.since, others: l.waiting}, nil
	}
	var a answer
	if err == nil {
		a, _, err = s.request(ctx, r, false)
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

// enrol is how long a place lasts without a refresh.
func enrol(ttl time.Duration) time.Duration { return min(ttl, maxEnrol) }

// request asks once for a lease. Only a request that creates may take a key or a place
// that the owner does not have.
func (s *session) request(ctx context.Context, r driver.Request, create bool) (answer, bool, error) {
	return ask(ctx, s, s.Closing, func(ctx context.Context, at *attempt) (a answer, err error) {
		err = s.decide(ctx, at, r.Key, func(d *decision) error {
			if r.Replace != nil {
				if _, err := d.end(r.Replace.Owner, 0); err != nil {
					return err
				}
			}
			a = answer{sent: d.sent, now: d.now}
			if a.outcome, err = d.seek(r, create); err != nil {
				return err
			}
			if c := d.find(r.Owner); c != nil {
				a.token = c.token
			}
			a.others = d.waiting() > 0
			if end := d.firstEnd(); end > 0 {
				a.left = micros(end - d.now)
			}
			return nil
		})
		return a, err
	})
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// seek gives an owner what it can have.
func (d *decision) seek(r driver.Request, create bool) (outcome, error) {
	ttl := r.TTL.Microseconds()
	c := d.find(r.Owner)
	switch {
	case d.isEnded(r.Owner), c != nil && c.state == kept, c == nil && !create:
		return over, nil

	case c != nil && c.state == holds:
		c.expires, c.ttl = max(c.expires, d.now+ttl), max(c.ttl, ttl)
		return granted, d.exec(d.s.q.extend, c.expires, c.ttl, []byte(d.key), r.Owner[:])

	case c != nil && d.head() == c && d.fits(c.room):
		return granted, d.grant(c, d.now+ttl, ttl)

	case c != nil:
		c.expires = max(c.expires, d.now+c.ttl)
		return queued, d.exec(d.s.q.extend, c.expires, c.ttl, []byte(d.key), r.Owner[:])
	}

	n := claim{owner: r.Owner, room: room(r.Mode, r.Limit)}
	switch first := d.head() == nil; {
	case first && d.fits(n.room):
		n.state, n.turn, n.token = holds, noTurn, d.next()
		n.granted, n.expires, n.ttl = d.now, d.now+ttl, ttl
		return granted, d.insert(n)
	case !r.Wait:
		return busy, d.note()
	default:
		e := enrol(r.TTL).Microseconds()
		n.state, n.turn, n.expires, n.ttl = waits, d.lastTurn()+1, d.now+e, e
		d.news = first
		return queued, d.insert(n)
	}
}

// note tells the holders of a request that would not wait, unless they have just been told
// of another one.
func (d *decision) note() error {
	const often = int64(20 * time.Millisecond / time.Microsecond)
	var granted int64
	for i := range d.claims {
		granted = max(granted, d.claims[i].granted)
	}
	if d.asked <= granted || d.now-d.asked > often {
		d.asked, d.dirty, d.news = d.now, true, true
	}
	return nil
}
