package sqllock

import (
	"context"
	"database/sql"
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
		if clean {
			s.batons.drop(r.Owner)
		}
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
		s.batons.drop(r.Replace.Owner)
		r.Replace = nil
	}
	if a.outcome == queued {
		place := s.addPlace(r, a)
		defer s.claims.leave(place)
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
			if a.outcome == queued {
				s.claims.tell(place, a)
			}
			driver.TakenBy(s.sink, r.ID, a.holder)
		}
		if a.outcome == granted && r.Mode != driver.Exclusive {
			s.batons.pass(r.Owner) // the waiter behind may have been granted its lease, too
		}
	}
	switch a.outcome {
	case busy, full:
		return driver.Grant{}, true, &driver.HeldError{RetryAfter: a.remaining, Holder: a.holder, Full: a.outcome == full}
	case placeLost:
		return driver.Grant{}, true, driver.ErrPlaceLost
	}
	g = driver.Grant{ID: r.ID, Token: a.token, Deadline: driver.Deadline(a.sentAt, r.TTL), Contended: a.contended}
	s.claims.addLease(g, a.serverTime)
	if a.contended || a.crowded {
		s.takeBaton(r.Owner)
	}
	return g, false, nil
}

// addPlace registers a place in the queue, and has somebody sleep for it.
func (s *session) addPlace(r *driver.Request, a answer) *ownClaim {
	place := s.claims.addPlace(r.ID, placeTTL(r.TTL), a, a.sure && s.maySleep())
	s.takeBaton(r.Owner)
	if !s.startSleeper() {
		s.claims.setAsleep(place, false)
	}
	return place
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
	crowded := s.claims.crowded.Was(r.Key)
	alone := create && r.Replace == nil && !crowded
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
			a = answer{sentAt: d.sentAt, serverTime: d.now, crowded: crowded}
			if a.outcome, err = d.acquire(r, create); err != nil {
				return err
			}
			if c := d.claimOf(r.Owner); c != nil {
				a.token = c.token
			}
			if a.outcome == queued || a.outcome == busy || a.outcome == full {
				a.holder = d.taker()
				a.before, a.sure = d.before(r.Owner)
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
	case r.MaxWaiting > 0 && d.countWaiting() >= r.MaxWaiting:
		return full, nil // that somebody waits the holders know
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

// A key that nobody else wants is acquired, and released, by one statement that does what a
// decision would do, in a transaction of its own. If somebody else has a claim on the key, the
// statement changes nothing, and a decision follows. So it does if the connection's settings would
// not have it be a transaction of its own, see notAlone. Like a decision it locks the key's row before
// it looks at claims, so that each sees what the other has done.
//
// Such a statement may be executed after its caller has given up, unlike a decision, which ends
// with a COMMIT that is not sent then. So the clean-up of an owner has the key's row remember it,
// and a statement that comes later finds its owner ended.

// answer is an outcome with its details.
type answer struct {
	outcome    outcome
	token      int64
	sentAt     time.Time    // when the request that set the lease's end was sent
	serverTime int64        // of the decision, or of the grant
	contended  bool         // somebody else waits for the key
	crowded    bool         // somebody did when the session last asked
	before     driver.Owner // of a waiter, see keyState.before
	sure       bool
	remaining  time.Duration // of the lease that ends first; 0 if there is none
	holder     driver.Origin // of one of the leases, if it was not granted
}

// outcome is the result of a request for a lease.
type outcome uint8

const (
	granted outcome = iota + 1
	queued
	busy      // the key is taken, and the request does not wait
	full      // as many wait as the request lets wait before it
	placeLost // the owner has ended, or its place has expired
)

// takeFree grants a key that nobody else wants. ok is false if there may be somebody, or it is
// for a decision to say; then it has changed nothing. a.token is the server's time of the grant.
func (s *session) takeFree(ctx context.Context, at *attempt, r driver.Request) (a answer, ok bool, err error) {
	err = s.tables.run(func(q *queries) error {
		a, ok, err = s.takeFreeBy(ctx, q, at, r)
		return err
	})
	return a, ok, err
}

func (s *session) takeFreeBy(ctx context.Context, q *queries, at *attempt, r driver.Request) (a answer, ok bool, err error) {
	ttl, listens := r.TTL.Microseconds(), 0
	if s.notifications != nil {
		listens = 1
	}
	values := []any{r.Owner[:], int64(room(r.Mode, r.Limit)), ttl, ttl, s.id[:], listens}
	if q.named {
		values = append(values, origin(driver.Origin{Identity: s.identity, Trace: r.Trace}))
	}
	values = append(values, []byte(r.Key), r.Owner[:])
	done, err := s.execAlone(ctx, q, at, r.Key, q.free.take, values...)
	if err != nil || done.rows == 0 {
		return a, false, err
	}
	a.outcome, a.sentAt, a.token = granted, done.sentAt, done.id
	if done.id == 0 {
		err = s.db.QueryRowContext(ctx, q.free.lease, []byte(r.Key), r.Owner[:]).Scan(&a.token, &a.contended)
		if err == sql.ErrNoRows {
			return a, false, nil // it was ousted at once
		}
	}
	a.serverTime = a.token
	return a, err == nil, err
}

// endAlone releases a lease of a key that nobody else wants. It reports whether it has.
func (s *session) endAlone(ctx context.Context, at *attempt, e driver.ID) (ended bool, err error) {
	key, o := []byte(e.Key), e.Owner[:]
	q := s.tables.queries()
	done, err := s.execAlone(ctx, q, at, e.Key, q.free.end, key, o, key, o, rowRetention, o, maxRememberedEnds*len(e.Owner), key)
	if done.rows > 0 && s.d == MySQL {
		s.spent.add(e)
	}
	return done.rows > 0, err
}

// done is what a statement has done.
type done struct {
	sentAt time.Time
	rows   int64 // that were changed
	id     int64 // LAST_INSERT_ID; 0 in PostgreSQL
}

// execAlone executes a statement in a transaction of its own, or changes nothing. Like a decision it
// is the only one of the session for the key.
func (s *session) execAlone(ctx context.Context, q *queries, a *attempt, key, statement string, values ...any) (out done, err error) {
	unlock, err := s.keyMutexes.lock(ctx, key)
	if err != nil {
		return done{}, err
	}
	defer unlock()
	if a.isAbandoned() {
		return done{}, errAbandoned
	}
	a.progress()
	out.sentAt = time.Now()
	statement = s.d.text(statement, values...)
	var result sql.Result
	if s.d == PostgreSQL {
		err = a.commit(func() error {
			result, err = s.db.ExecContext(ctx, s.d.text(q.free.begin, []byte(key))+statement)
			return err
		})
	} else {
		result, err = s.execOnConn(ctx, a, statement)
	}
	if notAlone(err) {
		return done{}, nil
	}
	if err != nil {
		return done{}, err
	}
	a.progress()
	if out.rows, err = result.RowsAffected(); err == nil && s.d == MySQL {
		out.id, err = result.LastInsertId()
	}
	return out, err
}

// execOnConn is execAlone in MySQL, where the level is set by a request of its own, for the
// connection's next transaction.
func (s *session) execOnConn(ctx context.Context, a *attempt, statement string) (result sql.Result, err error) {
	err = s.onConn(ctx, func(conn *sql.Conn) (err error) {
		defer func() {
			if err != nil { // the level may still wait for a transaction, which must not be the user's
				_ = settle(ctx, conn, commitSQL)
			}
		}()
		if _, err = conn.ExecContext(ctx, atReadCommitted); err != nil {
			return err
		}
		a.progress()
		return a.commit(func() error {
			result, err = conn.ExecContext(ctx, statement)
			return err
		})
	})
	return result, err
}
