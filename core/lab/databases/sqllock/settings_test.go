package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/sqllock"
)

// seenConnector makes connections that tell of each statement that they have executed, or refused.
type seenConnector struct {
	sqldriver.Connector
	seen func(statement string)
}

func (c seenConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return seenConn{conn.(mysqlConn), c.seen}, nil
}

// mysqlConn is what a connection of MySQL's client library offers to database/sql.
type mysqlConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.NamedValueChecker
	sqldriver.Pinger
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
}

type seenConn struct {
	mysqlConn
	seen func(statement string)
}

func (c seenConn) ExecContext(ctx context.Context, statement string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	r, err := c.mysqlConn.ExecContext(ctx, statement, args)
	if err != sqldriver.ErrSkip { // it is to be prepared
		c.seen(statement)
	}
	return r, err
}

func (c seenConn) QueryContext(ctx context.Context, statement string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	r, err := c.mysqlConn.QueryContext(ctx, statement, args)
	if err != sqldriver.ErrSkip {
		c.seen(statement)
	}
	return r, err
}

// TestLockWaitTimeoutOfAConnectionStaysThoughTheContextEnds ends the context of InTx, which is not
// that of its transaction, after each of its statements.
func TestLockWaitTimeoutOfAConnectionStaysThoughTheContextEnds(t *testing.T) {
	t.Parallel()
	d := products[1].database(t, products[1].server.Shared(t))
	for _, after := range []string{`SET SESSION innodb_lock_wait_timeout = /*`, `INSERT INTO lockaround_row`} {
		t.Run(after, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			connector, err := d.Driver().(sqldriver.DriverContext).OpenConnector(d.SourceAt(d.On.Addr()) + d.options)
			if err != nil {
				t.Fatal(err)
			}
			db := sql.OpenDB(seenConnector{connector, func(statement string) {
				if strings.HasPrefix(statement, after) {
					cancel()
				}
			}})
			defer func() { _ = db.Close() }()
			db.SetMaxOpenConns(1)
			settings := func() (connection, timeout int64) {
				if err := db.QueryRowContext(t.Context(), `SELECT connection_id(), @@innodb_lock_wait_timeout`).Scan(&connection, &timeout); err != nil {
					t.Fatal(err)
				}
				return connection, timeout
			}
			connection, want := settings()
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := sqllock.InTx(ctx, tx, d.dialect, "stock", 0); ctx.Err() == nil || err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("InTx returns %v; its context has ended: %v", err, ctx.Err())
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if c, got := settings(); c != connection || got != want {
				t.Errorf("connection %d has a time-out of %d s; it was %d s of connection %d", c, got, want, connection)
			}
		})
	}
}
