package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// runAttempt runs f on a goroutine of the session, and repeats it after transient errors,
// until it succeeds, ctx ends, stop is closed, or the server leaves a statement unanswered
// for the session's time-out. If err is not nil, unchanged reports whether the attempt has
// certainly changed nothing.
func runAttempt[T any](ctx context.Context, s *session, stop <-chan struct{}, f func(context.Context, *attempt) (T, error)) (out T, unchanged bool, err error) {
	return runTries(ctx, s, stop, new(kit.Tries), f)
}

// runTries is runAttempt, and notes the tries that it repeats.
func runTries[T any](
	ctx context.Context, s *session, stop <-chan struct{}, tries *kit.Tries, f func(context.Context, *attempt) (T, error),
) (out T, unchanged bool, err error) {
	type result struct {
		out T
		err error
	}
	if err := ctx.Err(); err != nil {
		return out, true, err
	}
	waited := s.db.Stats().WaitCount
	silence := func() error { return s.silence(waited) }
	inner, cancel := context.WithCancel(s.Ctx)
	limit := time.AfterFunc(s.timeout, cancel)
	a := &attempt{resetTimeout: func() { limit.Reset(s.timeout) }}
	finished := make(chan result, 1)
	if !s.Start(func() {
		defer cancel() // after the result was sent: before, it would look like a time-out
		defer limit.Stop()
		var r result
		r.err = retry(inner, s.timeout, silence, tries, func() (err error) {
			r.out, err = f(inner, a)
			return err
		})
		finished <- r
	}) {
		limit.Stop()
		cancel()
	}
	answered := func(r result) (T, bool, error) {
		if r.err == nil {
			return r.out, false, nil
		}
		return out, a.abandon(), r.err
	}
	select {
	case r := <-finished:
		return answered(r)
	case <-ctx.Done():
		unchanged = a.abandon()
		// Client libraries close the connection of a cancelled statement, and a new
		// connection costs as much as many statements. So the statement may finish.
		limit.Reset(min(statementGrace, s.timeout))
		return out, unchanged, tries.Ended(ctx.Err())
	case <-inner.Done():
		select {
		case r := <-finished: // f returned first, and cancelled inner
			return answered(r)
		default:
		}
		err = tries.Ended(silence())
		if s.Ctx.Err() != nil {
			err = driver.ErrClosed
		}
	case <-stop:
		cancel()
		err = driver.ErrClosed
	}
	return out, a.abandon(), err
}

// statementGrace is how long a statement may run on after its caller has left.
const statementGrace = 250 * time.Millisecond

// retry runs f until it succeeds, fails permanently, ctx ends, or limit has passed.
func retry(ctx context.Context, limit time.Duration, silence func() error, tries *kit.Tries, f func() error) error {
	start := time.Now()
	for pause := firstPause; ; pause = min(2*pause, maxPause) {
		err := f()
		if err = classify(err); kit.Final(err) || errors.Is(err, errAbandoned) {
			return err
		}
		if ctx.Err() == nil { // otherwise the error is of the statement that was given up
			tries.Failed(err)
		}
		if time.Since(start) > limit || !kit.Sleep(ctx, time.Duration((0.5+rand.Float64())*float64(pause))) {
			return tries.Ended(silence())
		}
	}
}

const (
	firstPause = 5 * time.Millisecond // before the first retry
	maxPause   = 50 * time.Millisecond
)

// attempt is one request to the database, including its retries. The caller may abandon it
// at any time. After that nothing that commits is sent, whatever the client library does.
type attempt struct {
	mu         sync.Mutex
	abandoned  bool // by its caller
	commitSent bool // something that commits was sent; its outcome may be unknown

	resetTimeout func() // restarts the time-out for the next statement; nil if there is none
}

// progress restarts the time-out, because the server has answered a statement.
func (a *attempt) progress() {
	if a.resetTimeout != nil && !a.isAbandoned() {
		a.resetTimeout()
	}
}

// commit calls f, which sends a COMMIT or a statement that commits itself, unless the attempt was
// abandoned.
func (a *attempt) commit(f func() error) error {
	a.mu.Lock()
	if a.abandoned {
		a.mu.Unlock()
		return errAbandoned
	}
	a.commitSent = true
	a.mu.Unlock()
	return f()
}

// isAbandoned reports whether the caller has abandoned the attempt.
func (a *attempt) isAbandoned() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.abandoned
}

// abandon prevents any later COMMIT. It reports whether the attempt has certainly changed
// nothing.
func (a *attempt) abandon() (unchanged bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.abandoned = true
	return !a.commitSent
}

// errAbandoned ends an abandoned attempt. No caller sees it.
var errAbandoned = errors.New("the attempt was given up")

// A statement that is sent by itself is a transaction of its own, but not under every setting of
// MySQL: with autocommit off, or in a transaction that completion_type has chained to the one before,
// nothing is committed until somebody says so, and what is read is as old as that transaction. The
// settings are a connection's, which belongs to the caller, who may change them at any time. So each
// of these statements asks for them itself, where that costs no round trip, and fails before it has
// read or changed anything. It is then executed again between a START TRANSACTION and a COMMIT.

// aloneSQL is what {alone} stands for in MySQL's statements: a condition that is true, or a number that is too
// large, which is an error. It is a constant, so the server evaluates it before it looks at rows.
const aloneSQL = `9223372036854775807 + (@@autocommit = 0 OR @@completion_type <> 'NO_CHAIN' /*M! OR @@in_transaction */) > 0`

// notAlone reports whether the statement was not a transaction of its own, and has done nothing: the
// condition has failed, or there was a transaction already whose level could not be set.
func notAlone(err error) bool {
	c := code(err)
	return c == "1690" || c == "1568"
}

// executor is a pool, a connection or a transaction.
type executor interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, statement string, args ...any) *sql.Row
}

// alone runs f, which executes statements that are transactions of their own. It runs f twice, the
// second time in one transaction, if the first of these statements has found that it is not.
func (c *config) alone(ctx context.Context, f func(executor) error) error {
	if c.d == PostgreSQL {
		return f(c.db)
	}
	return c.onConn(ctx, func(conn *sql.Conn) error {
		err := f(conn)
		if !notAlone(err) {
			return err
		}
		tx, err := beginOn(ctx, conn)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
		if err := f(unconditional{tx}); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// exec is alone for one statement.
func (c *config) exec(ctx context.Context, statement string, args ...any) (result sql.Result, err error) {
	err = c.alone(ctx, func(x executor) (err error) {
		result, err = x.ExecContext(ctx, statement, args...)
		return err
	})
	return result, err
}

// query is alone for one statement, each of whose rows scan reads.
func (c *config) query(ctx context.Context, scan func(*sql.Rows) error, statement string, args ...any) error {
	return c.alone(ctx, func(x executor) error {
		rows, err := x.QueryContext(ctx, statement, args...)
		return scanAll(rows, err, scan)
	})
}

// scanAll calls scan for each of the rows.
func scanAll(rows *sql.Rows, err error, scan func(*sql.Rows) error) error {
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err has its error
	for rows.Next() {
		if err := scan(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// unconditional executes statements without their condition {alone}.
type unconditional struct{ executor }

func (u unconditional) ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error) {
	return u.executor.ExecContext(ctx, strings.ReplaceAll(statement, aloneSQL, "TRUE"), args...)
}

func (u unconditional) QueryContext(ctx context.Context, statement string, args ...any) (*sql.Rows, error) {
	return u.executor.QueryContext(ctx, strings.ReplaceAll(statement, aloneSQL, "TRUE"), args...)
}

// onConn calls f with a connection of its own, and once more for each that turns out to have been
// closed while it was idle, which *sql.DB does for its own calls.
func (c *config) onConn(ctx context.Context, f func(*sql.Conn) error) error {
	const most = 20
	for n := 1; ; n++ {
		conn, err := c.db.Conn(ctx)
		if err != nil {
			return err
		}
		err = f(conn)
		_ = conn.Close() // what was executed was answered
		if !errors.Is(err, sqldriver.ErrBadConn) || n == most || ctx.Err() != nil {
			return err
		}
	}
}

// tx is a transaction.
type tx interface {
	executor
	Commit() error
	Rollback() error
}

// inTx calls f in a transaction at READ COMMITTED that f commits, or that is rolled back. Each of
// its statements sees what others committed before it, and MySQL locks no gaps between keys.
func (c *config) inTx(ctx context.Context, f func(tx) error) error {
	if c.d == PostgreSQL {
		tx, err := c.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
		return f(tx)
	}
	return c.onConn(ctx, func(conn *sql.Conn) error {
		tx, err := beginOn(ctx, conn)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
		return f(tx)
	})
}

// ownTx is a transaction of MySQL. It ends without another one, and without its connection, whatever
// completion_type says, which a *sql.Tx does not.
type ownTx struct {
	*sql.Conn
	ctx   context.Context
	ended bool
}

const (
	commitSQL   = `COMMIT AND NO CHAIN NO RELEASE`
	rollbackSQL = `ROLLBACK AND NO CHAIN NO RELEASE`
)

// beginOn begins a transaction on a connection of MySQL. One that somebody has left open there is
// committed, as START TRANSACTION does.
func beginOn(ctx context.Context, conn *sql.Conn) (*ownTx, error) {
	t := &ownTx{Conn: conn, ctx: ctx}
	_, err := conn.ExecContext(ctx, atReadCommitted)
	if notAlone(err) {
		if _, err = conn.ExecContext(ctx, commitSQL); err == nil {
			_, err = conn.ExecContext(ctx, atReadCommitted)
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, `START TRANSACTION`)
	}
	if err != nil {
		_ = t.Rollback() // the level may still wait for a transaction, which must not be the user's
		return nil, err
	}
	return t, nil
}

// Commit commits the transaction.
func (t *ownTx) Commit() error {
	_, err := t.ExecContext(t.ctx, commitSQL)
	t.ended = err == nil
	return err
}

// Rollback ends a transaction that was not committed. If the server does not say so soon, the
// connection is closed.
func (t *ownTx) Rollback() error {
	if t.ended {
		return nil
	}
	t.ended = true
	return settle(t.ctx, t.Conn, rollbackSQL)
}

// settle ends whatever transaction a connection is in, before it goes back to its pool, or closes the
// connection.
func settle(ctx context.Context, conn *sql.Conn, how string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementGrace)
	defer cancel()
	_, err := conn.ExecContext(ctx, how)
	if err != nil {
		_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn }) // which closes it
	}
	return err
}

// silence is the error of an attempt that got no answer in time. It says so if statements have waited for a
// connection since the attempt began, when as many had waited, and there still is none.
func (s *session) silence(waited int64) error {
	e := &kit.SilenceError{Store: "sql", After: s.timeout}
	if p := s.db.Stats(); p.MaxOpenConnections > 0 && p.InUse >= p.MaxOpenConnections && p.WaitCount > waited {
		e.Last = fmt.Errorf("all %d connections of the *sql.DB are in use; give the locks a *sql.DB of their own, so that those who hold them leave one for renewals and releases", p.MaxOpenConnections)
	}
	return e
}

// classify wraps an error of database/sql. If retrying is useless it returns a
// *driver.PermanentError. All other errors are retried: deadlocks (40P01, 1213),
// serialization failures (40001, 1020), lock wait time-outs (55P03, 1205), broken
// connections, servers that start or stop, and unknown codes.
func classify(err error) error {
	if kit.Final(err) {
		return err
	}
	if why, ok := permanentCodes[code(err)]; ok {
		return &driver.PermanentError{Err: fmt.Errorf("sql: %s: %w", why, err)}
	}
	if err.Error() == "sql: database is closed" { // database/sql does not export it
		return &driver.PermanentError{Err: fmt.Errorf("sql: the *sql.DB is closed; close it after its sessions: %w", err)}
	}
	wrapped := fmt.Errorf("sql: %w", err)
	if code(err) != "" {
		return &driver.RefusedError{Err: wrapped}
	}
	return wrapped
}

// permanentCodes are the errors that a statement gets again until somebody changes the
// database or the user's rights.
var permanentCodes = map[string]string{
	// SQLSTATE, of PostgreSQL
	"42P01": "a table is missing, or not in the search_path; run Migrate, or the statements of Schema",
	"3F000": "the schema does not exist",
	"42703": "a column is missing; the tables are of another version",
	"42501": "the user has no right to it; grant SELECT, INSERT, UPDATE and DELETE on the three tables",
	"42601": "the server does not understand the statement; is the dialect right?",
	"42883": "the server lacks a function; PostgreSQL 11 or later is needed",
	"28000": "the user may not log in",
	"28P01": "the password is wrong",
	"3D000": "the database does not exist",
	// numbers, of MySQL
	"1146": "a table is missing; run Migrate, or the statements of Schema",
	"1054": "a column is missing; the tables are of another version",
	"1142": "the user has no right to it; grant SELECT, INSERT, UPDATE and DELETE on the three tables",
	"1143": "the user has no right to it; grant SELECT, INSERT, UPDATE and DELETE on the three tables",
	"1044": "the user has no right to the database",
	"1045": "the user may not log in",
	"1049": "the database does not exist",
	"1046": "the connection has chosen no database; name one in the data source",
	"1305": "the server lacks a function; is the dialect right?",
	"1064": "the server does not understand the statement; is the dialect right?",
	"1792": "the connection's transactions are read-only; set tx_read_only (transaction_read_only) off",
	"1665": "binlog_format is STATEMENT, which cannot log READ COMMITTED; set it to ROW",
}

// errTaken is the error of a lease that the server no longer has: it was ousted, or the
// server has lost it.
var errTaken = errors.New("sql: the lease was taken from its owner, or the server has lost it")
