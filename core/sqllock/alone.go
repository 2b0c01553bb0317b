package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
)

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
