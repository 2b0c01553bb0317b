package sqllock

import (
	"context"
	"database/sql"
	"time"

	lock "github.com/lockaround/lockaround/core/driver"
)

// A key that nobody else wants is acquired, and released, by one statement that does what a
// decision would do, in a transaction of its own. If somebody else has a claim on the key, the
// statement changes nothing, and a decision follows. So it does if the connection's settings would
// not have it be a transaction of its own, see alone.go. Like a decision it locks the key's row before
// it looks at claims, so that each sees what the other has done.
//
// Such a statement may be executed after its caller has given up, unlike a decision, which ends
// with a COMMIT that is not sent then. So the clean-up of an owner has the key's row remember it,
// and a statement that comes later finds its owner ended.

// answer is an outcome with its details.
type answer struct {
	outcome    outcome
	token      int64
	sentAt     time.Time     // when the request that set the lease's end was sent
	serverTime int64         // of the decision, or of the grant
	contended  bool          // somebody else waits for the key
	remaining  time.Duration // of the lease that ends first; 0 if there is none
	holder     lock.Origin   // of one of the leases, if queued or busy
}

// outcome is the result of a request for a lease.
type outcome uint8

const (
	granted outcome = iota + 1
	queued
	busy      // the key is taken, and the request does not wait
	placeLost // the owner has ended, or its place has expired
)

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
