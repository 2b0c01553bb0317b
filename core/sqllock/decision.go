package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// decision is a transaction that has locked a key's row and decides who gets the key. Its
// methods change the key's state and the tables alike. Meanwhile nobody else changes the
// key's claims, except that renewals and refreshes extend claims that have not expired.
type decision struct {
	keyState
	s       *session
	attempt *attempt
	ctx     context.Context
	tx      tx
	q       *queries
	key     string

	sentAt time.Time // before the server's time was read

	rowChanged    bool     // and must be written
	changes       []string // to be sent
	needsCommit   bool     // something was changed
	contended     bool     // the holders are to be told so
	notifications []notification
	granted       []driver.Owner // waiters of this session
}

// errKey refuses keys that are too long for the index, and the empty key, whose row has the
// floor.
var errKey = &driver.PermanentError{Err: fmt.Errorf("sql: the key is empty or too long; use 1 to %d bytes", MaxKeyLength)}

// decideInBackground makes a decision for no caller, also while the session is being closed.
func (s *session) decideInBackground(ctx context.Context, key string, f func(*decision) error) error {
	_, _, err := runAttempt(ctx, s, nil, func(ctx context.Context, a *attempt) (struct{}, error) {
		return struct{}{}, s.decide(ctx, a, key, f)
	})
	return err
}

// decide locks a key's row, runs f, grants the key to the waiters that fit, and commits the
// changes. f may run several times, each time in a new transaction. At most the last of
// them is committed, unless the reply to a COMMIT is lost: then the next run of f finds the
// changes of the one before.
func (s *session) decide(ctx context.Context, a *attempt, key string, f func(*decision) error) error {
	return s.tables.run(func(q *queries) error { return s.decideBy(ctx, q, a, key, f) })
}

// decideBy is decide by those queries.
func (s *session) decideBy(ctx context.Context, q *queries, a *attempt, key string, f func(*decision) error) error {
	if key == "" || len(key) > MaxKeyLength {
		return errKey
	}
	unlock, err := s.keyMutexes.lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	if a.isAbandoned() {
		return errAbandoned
	}
	a.progress()
	return s.inTx(ctx, func(tx tx) error { return s.decideIn(ctx, tx, q, a, key, f) })
}

// decideIn is decideBy in a transaction that has just begun.
func (s *session) decideIn(ctx context.Context, tx tx, q *queries, a *attempt, key string, f func(*decision) error) error {
	a.progress()
	if a.isAbandoned() {
		return errAbandoned
	}
	d := &decision{s: s, attempt: a, ctx: ctx, tx: tx, q: q, key: key}
	if err := d.lockRow(); err != nil {
		return err
	}
	a.progress()
	if a.isAbandoned() {
		return errAbandoned
	}
	if err := d.loadClaims(); err != nil {
		return err
	}
	a.progress()
	if a.isAbandoned() {
		return errAbandoned
	}
	if err := d.endExpired(); err != nil {
		return err
	}
	if err := f(d); err != nil {
		return err
	}
	if err := d.grantToWaiters(); err != nil {
		return err
	}
	if err := d.saveRow(); err != nil {
		return err
	}
	if d.needsCommit {
		if err := a.commit(tx.Commit); err != nil {
			return err
		}
	}
	s.claims.wakeWaiters(d.granted...)
	return nil
}

// lockRow locks the key's row, and creates it if necessary.
func (d *decision) lockRow() error {
	for range 10 { // a sweep may remove it in between
		var ignored sql.NullString
		statement, args := d.s.d.bind(d.q.lockRow, []byte(d.key))
		err := d.tx.QueryRowContext(d.ctx, statement, args...).Scan(&d.token, &d.floorToken, &d.ousted, &d.askedAt, &d.retainUntil, &d.ended, &ignored)
		if err != sql.ErrNoRows {
			return err
		}
		d.attempt.progress()
		if err := errors.Join(d.exec(d.q.insertRow, rowRetention, []byte(d.key)), d.flush()); err != nil {
			return err
		}
	}
	return fmt.Errorf("the row of a key was swept ten times while it was to be locked")
}

// loadClaims reads the key's claims. It is a statement of its own, so that it sees the
// changes of whoever locked the row before.
func (d *decision) loadClaims() error {
	d.sentAt = time.Now()
	statement, args := d.s.d.bind(d.q.selectClaims, []byte(d.key))
	rows, err := d.tx.QueryContext(d.ctx, statement, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err has its error
	d.claims = d.claims[:0]
	for rows.Next() {
		var (
			owner, session, from                         []byte
			st, turn, room, token, granted, expires, ttl sql.NullInt64
			listens                                      sql.NullInt64
		)
		if err := rows.Scan(&d.now, &owner, &st, &turn, &room, &token, &granted, &expires, &ttl, &session, &listens, &from); err != nil {
			return err
		}
		if !st.Valid {
			continue // there is no claim
		}
		c := claim{
			state: claimState(st.Int64), turn: turn.Int64, room: int32(room.Int64), token: token.Int64,
			grantedAt: granted.Int64, expiresAt: expires.Int64, ttl: ttl.Int64, listens: listens.Int64 != 0,
			from: originOf(from),
		}
		if copy(c.owner[:], owner) != len(owner) || copy(c.session[:], session) != len(session) {
			return &driver.PermanentError{Err: fmt.Errorf("sql: a claim's owner has %d bytes and its session %d; both have 16", len(owner), len(session))}
		}
		d.claims = append(d.claims, c)
	}
	d.sortClaims()
	return rows.Err()
}

// endExpired ends claims that have expired. The DELETE checks the expiry again, because a
// renewal may have come after the claims were read.
func (d *decision) endExpired() error {
	again := false
	for i := 0; i < len(d.claims); {
		c := d.claims[i]
		if c.expiresAt > d.now {
			i++
			continue
		}
		statement, args := d.s.d.bind(d.q.deleteExpired, []byte(d.key), c.owner[:], d.now)
		done, err := d.tx.ExecContext(d.ctx, statement, args...)
		if err != nil {
			return err
		}
		d.attempt.progress()
		n, err := done.RowsAffected()
		if err != nil {
			return err
		}
		if n == 0 {
			again = true
			i++
			continue
		}
		d.dropClaim(c.owner)
		d.rowChanged, d.needsCommit = true, true
	}
	if again {
		return d.loadClaims()
	}
	return nil
}

// insertClaim adds a claim of this session.
func (d *decision) insertClaim(c claim) error {
	c.session, c.listens = d.s.id, d.s.notifications != nil
	listens := 0
	if c.listens {
		listens = 1
	}
	d.claims = append(d.claims, c)
	d.sortClaims()
	args := []any{
		[]byte(d.key), c.owner[:], int64(c.state), c.turn, int64(c.room), c.token,
		c.grantedAt, c.expiresAt, c.ttl, c.session[:], listens,
	}
	if d.q.named {
		args = append(args, origin(c.from))
	}
	return d.exec(d.q.insertClaim, args...)
}

// endOwner ends an owner's place or lease. A lease ends at once, or when keep has passed
// since its grant. endOwner reports whether it has ended a lease, now or before with keep.
func (d *decision) endOwner(o driver.Owner, keep time.Duration) (ended bool, err error) {
	c := d.claimOf(o)
	switch {
	case c == nil:
		return false, nil
	case c.state == kept:
		return true, nil
	}
	held := c.state == holds
	d.rowChanged = true
	if until := min(c.grantedAt, d.now) + keep.Microseconds(); held && until > d.now {
		d.rememberEnded(o)
		c.state, c.expiresAt, c.ttl, c.listens = kept, until, until-d.now, false
		if next := d.head(); next != nil {
			d.notify(next, notifyKept)
		}
		d.keyState.retainUntil = max(d.keyState.retainUntil, until)
		return true, d.exec(d.q.keep, c.expiresAt, c.ttl, []byte(d.key), o[:])
	}
	d.dropClaim(o)
	return held, d.exec(d.q.deleteClaim, []byte(d.key), o[:])
}

// burn has the key's row remember an owner without a claim: a request for it may still come.
func (d *decision) burn(o driver.Owner) {
	d.rememberEnded(o)
	d.retainUntil = max(d.retainUntil, d.now+rowRetention)
	d.rowChanged = true
}

// grantToWaiters grants the key to the first waiters, as long as they fit. Their leases last
// as long as their places would have; a waiter that is alive extends its lease when it is
// woken.
func (d *decision) grantToWaiters() error {
	for c := d.head(); c != nil && d.fits(c.room); c = d.head() {
		if err := d.grantPlace(c, max(c.expiresAt, d.now+c.ttl/3), c.ttl); err != nil {
			return err
		}
	}
	return nil
}

// grantPlace turns a place into a lease.
func (d *decision) grantPlace(c *claim, expires, ttl int64) error {
	d.notify(c, notifyGranted)
	if c.session == d.s.id {
		d.granted = append(d.granted, c.owner)
	}
	o, token := c.owner, d.nextToken()
	c.token, c.state, c.turn, c.grantedAt, c.expiresAt, c.ttl = token, holds, noTurn, d.now, expires, ttl
	d.sortClaims()
	return d.exec(d.q.grant, token, d.now, expires, ttl, []byte(d.key), o[:])
}

// saveRow writes the key's row if it has changed, and sends the notifications and what else was
// not sent yet.
func (d *decision) saveRow() error {
	if d.rowChanged {
		if err := d.exec(d.q.saveRow, d.token, d.ousted, d.askedAt, d.retainUntil, d.ended, []byte(d.key)); err != nil {
			return err
		}
	}
	d.notifyHolders()
	for _, p := range d.notifications {
		if err := d.exec(d.q.notify, p.channel, p.payload); err != nil {
			return err
		}
	}
	return d.flush()
}

// notifyHolders tells the holders that the key is contended, if that is new.
func (d *decision) notifyHolders() {
	if d.contended {
		for i := range d.claims {
			if c := &d.claims[i]; c.state == holds {
				d.notify(c, notifyContended)
			}
		}
	}
}

// notify adds a notification for the owner of a claim, if its session listens.
func (d *decision) notify(c *claim, kind byte) {
	if c.listens && d.s.d == PostgreSQL {
		d.notifications = append(d.notifications, notification{channel(c.session), string(kind) + ownerHash(c.owner)})
	}
}

// exec executes a statement that changes something. In PostgreSQL that is left to flush, which
// sends all of them at once.
func (d *decision) exec(statement string, values ...any) error {
	d.needsCommit = true
	d.changes = append(d.changes, d.s.d.text(statement, values...))
	if d.s.d == PostgreSQL {
		return nil
	}
	return d.flush()
}

// flush executes the changes that were not sent yet.
func (d *decision) flush() error {
	if len(d.changes) == 0 {
		return nil
	}
	_, err := d.tx.ExecContext(d.ctx, strings.Join(d.changes, "; "))
	d.changes = nil
	if err == nil {
		d.attempt.progress()
	}
	return err
}

// keyMutexes admits one decision of this session at a time for each key. Without it several
// of them would wait at the server for the key's row, each with a connection, some for
// callers that have already left.
type keyMutexes struct {
	mu    sync.Mutex
	byKey map[string]*keyMutex
}

type keyMutex struct {
	taken chan struct{} // full while a decision uses the key
	users int           // decisions that use the key or wait for it
}

// lock waits until no other decision of the session uses the key. The caller ends its own
// with unlock.
func (ms *keyMutexes) lock(ctx context.Context, key string) (unlock func(), err error) {
	ms.mu.Lock()
	m := ms.byKey[key]
	if m == nil {
		if ms.byKey == nil {
			ms.byKey = make(map[string]*keyMutex)
		}
		m = &keyMutex{taken: make(chan struct{}, 1)}
		ms.byKey[key] = m
	}
	m.users++
	ms.mu.Unlock()
	select {
	case m.taken <- struct{}{}:
		return func() { <-m.taken; ms.leave(key, m) }, nil
	case <-ctx.Done():
		ms.leave(key, m)
		return nil, ctx.Err()
	}
}

// leave removes the key's mutex if nobody uses it any more.
func (ms *keyMutexes) leave(key string, m *keyMutex) {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	if m.users--; m.users == 0 {
		delete(ms.byKey, key)
	}
}
