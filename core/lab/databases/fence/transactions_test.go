package fence_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/testkit"
)

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// eachLevel runs a test on every database at every isolation level.
func eachLevel(t *testing.T, test func(t *testing.T, d *database, o *sql.TxOptions)) {
	each(t, func(t *testing.T, d *database) {
		for _, level := range levels {
			t.Run(level.String(), func(t *testing.T) { test(t, d, &sql.TxOptions{Isolation: level}) })
		}
	})
}

// begin begins a transaction that is rolled back with the test, unless it ended before.
func (d *database) begin(t testing.TB, o *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// admit admits a token in a transaction of its own.
func (d *database) admit(t testing.TB, o *sql.TxOptions, token fence.Token) error {
	t.Helper()
	tx := d.begin(t, o)
	if err := d.fence.Admit(t.Context(), tx, token); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// mustRepeat reports whether a database asks for the transaction to be repeated.
func mustRepeat(err error) bool {
	var p *pgconn.PgError
	var m *mysql.MySQLError
	switch {
	case errors.As(err, &p):
		return p.Code == "40001" || p.Code == "40P01"
	case errors.As(err, &m):
		return m.Number == 1213 || m.Number == 1020
	}
	return false
}

// waiting returns when a transaction waits for another's lock.
func (d *database) waiting(t testing.TB) {
	t.Helper()
	until(t, "a transaction that waits", func() bool { return d.blocked(t) })
}

// blocked reports whether a transaction waits for another's lock.
func (d *database) blocked(t testing.TB) bool {
	t.Helper()
	query := `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`
	if d.dialect == fence.MySQL {
		query = `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'innodb_row_lock_current_waits'`
	}
	return d.Number(t, query) > 0
}

// until waits until something holds.
var until = testkit.Until

// late is a transaction that goes on in the background.
func late[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}
