package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"testing"

	"github.com/lockaround/lockaround/core/sqllock"
)

// closing is a server that closes a number of connections as soon as somebody begins a transaction there.
type closing struct{ left, begun int }

var errClosed, errAsked = errors.New("invalid connection"), errors.New("the transaction was used")

func (c *closing) Connect(context.Context) (sqldriver.Conn, error) { return closingConn{c}, nil }
func (c *closing) Driver() sqldriver.Driver                        { return nil }

type closingConn struct{ *closing }

func (c closingConn) Begin() (sqldriver.Tx, error) {
	if c.begun++; c.begun <= c.left {
		return nil, errClosed
	}
	return c, nil
}
func (closingConn) Prepare(string) (sqldriver.Stmt, error) { return nil, errAsked }
func (closingConn) Close() error                           { return nil }
func (closingConn) Commit() error                          { return nil }
func (closingConn) Rollback() error                        { return nil }

func TestTransactionBeginsOnAnotherConnectionIfTheServerClosedItsOwn(t *testing.T) {
	for _, tt := range []struct {
		closed, begun int
		want          error
	}{
		{0, 1, errAsked},
		{2, 3, errAsked},
		{9, 3, errClosed},
	} {
		server := &closing{left: tt.closed}
		db := sql.OpenDB(server)
		err := sqllock.WithTx(t.Context(), db, sqllock.MySQL, "stock", 0, func(context.Context, *sql.Tx) error { return nil })
		if !errors.Is(err, tt.want) || server.begun != tt.begun {
			t.Errorf("with %d closed connections: %v after %d, want %v after %d", tt.closed, err, server.begun, tt.want, tt.begun)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
