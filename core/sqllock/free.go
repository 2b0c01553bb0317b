package sqllock

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"

	lock "github.com/lockaround/lockaround/core/driver"
)

// A key that nobody else wants is acquired, and released, by one statement that does what a
// decision would do, in a transaction of its own. If somebody else has a claim on the key, the
// statement changes nothing, and a decision follows. Like a decision it locks the key's row before
// it looks at claims, so that each sees what the other has done.
//
// Such a statement may be executed after its caller has given up, unlike a decision, which ends
// with a COMMIT that is not sent then. So the clean-up of an owner has the key's row remember it,
// and a statement that comes later finds its owner ended.

// free are these statements. Values are part of their text, so that they cost one round trip
// whatever the client library does with parameters; see Dialect.literal. The comments list their
// values.
type free struct {
	begin string // before it, in the same request in PostgreSQL; key
	take  string // owner, room, TTL, TTL, session, listens, key, owner; with the column origin after listens
	end   string // key, owner, key, owner, retention, owner, length of ended, key
	lease string // the token of a lease, and whether somebody waits: key, owner
}

// atReadCommitted begins a transaction of one request, whatever the connection's level is.
const atReadCommitted = `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`

func newFree(d Dialect, column, value string) free {
	f := free{
		lease: `SELECT c.token, ` + contendedSQL + ` FROM lockaround_claim c WHERE c.lock_key = ? AND c.owner = ? AND c.state = 1`,
	}
	const columns = `INSERT INTO lockaround_claim (lock_key, owner, state, turn, room, token, granted_us, expires_us, ttl_us, session, listens`
	if d == PostgreSQL {
		// The row is locked by a statement before, as each sees what was committed before it began.
		f.begin = atReadCommitted + `; SELECT 1 FROM lockaround_lock WHERE lock_key = ? FOR UPDATE; `
		f.take = columns + column + `)
SELECT l.lock_key, ?, 1, 9223372036854775807, ?, n.t, n.t, n.t + ?, ?, ?, ?` + value + `
FROM lockaround_lock l CROSS JOIN (SELECT {now} AS t) n
WHERE l.lock_key = ? AND l.token < n.t AND l.floor_token < n.t AND position(? IN l.ended) = 0
AND NOT EXISTS (SELECT 1 FROM lockaround_claim c WHERE c.lock_key = l.lock_key)`
		f.end = `WITH g AS (DELETE FROM lockaround_claim c WHERE c.lock_key = ? AND c.owner = ? AND c.state = 1 AND c.expires_us > {now}
AND EXISTS (SELECT 1 FROM lockaround_lock r WHERE r.lock_key = c.lock_key)
AND NOT EXISTS (SELECT 1 FROM lockaround_claim o WHERE o.lock_key = ? AND o.owner <> ?) RETURNING c.token, c.expires_us)
UPDATE lockaround_lock l SET token = GREATEST(l.token, g.token), keep_us = GREATEST(l.keep_us, g.expires_us, {now} + ?),
ended = substring(? || l.ended FROM 1 FOR ?) FROM g WHERE l.lock_key = ?`
		return f
	}
	// The row is the first table of the join, and locked before claims are read. A locking read
	// sees what was committed last.
	f.take = columns + column + `)
SELECT l.lock_key, ?, 1, 9223372036854775807, ?, LAST_INSERT_ID({now}), {now}, {now} + ?, ?, ?, ?` + value + `
FROM lockaround_lock l LEFT JOIN lockaround_claim c ON c.lock_key = l.lock_key AND c.expires_us > 0
WHERE l.lock_key = ? AND l.token < {now} AND l.floor_token < {now} AND LOCATE(?, l.ended) = 0 AND c.lock_key IS NULL FOR UPDATE`
	// MySQL cannot delete from one table and update another in one statement. So the claim is
	// spent: it has expired long ago, and is deleted a little later.
	f.end = `UPDATE lockaround_lock l JOIN lockaround_claim c ON c.lock_key = ? AND c.owner = ?
LEFT JOIN lockaround_claim o ON o.lock_key = ? AND LOCATE(?, o.owner) = 0 AND o.expires_us > 0
SET l.token = GREATEST(l.token, c.token), l.keep_us = GREATEST(l.keep_us, {now} + GREATEST(?, c.ttl_us)),
l.ended = LEFT(CONCAT(?, l.ended), ?), c.expires_us = 0
WHERE l.lock_key = ? AND c.state = 1 AND c.expires_us > {now} AND o.owner IS NULL`
	return f
}

// takeFree grants a key that nobody else wants. ok is false if there may be somebody, or it is
// for a decision to say; then it has changed nothing. a.token is the server's time of the grant.
func (s *session) takeFree(ctx context.Context, at *attempt, r lock.Request) (a answer, ok bool, err error) {
	err = s.tables.run(func(q *queries) error {
		a, ok, err = s.takeFreeBy(ctx, q, at, r)
		return err
	})
	return a, ok, err
}

func (s *session) takeFreeBy(ctx context.Context, q *queries, at *attempt, r lock.Request) (a answer, ok bool, err error) {
	ttl, listens := r.TTL.Microseconds(), 0
	if s.notifications != nil {
		listens = 1
	}
	values := []any{r.Owner[:], int64(room(r.Mode, r.Limit)), ttl, ttl, s.id[:], listens}
	if q.named {
		values = append(values, origin(lock.Origin{Identity: s.identity, Trace: r.Trace}))
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
func (s *session) endAlone(ctx context.Context, at *attempt, e lock.ID) (ended bool, err error) {
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

// execAlone executes a statement in a transaction of its own. Like a decision it is the only one
// of the session for the key.
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
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // the level may still wait for a transaction, which must not be the user's
			if _, cerr := conn.ExecContext(ctx, `COMMIT`); cerr != nil {
				_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it is closed
			}
		}
		_ = conn.Close() // what was executed was answered
	}()
	if _, err = conn.ExecContext(ctx, atReadCommitted); err != nil {
		return nil, err
	}
	a.progress()
	err = a.commit(func() error {
		result, err = conn.ExecContext(ctx, statement)
		return err
	})
	return result, err
}
