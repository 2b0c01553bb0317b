package decorator_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

// till is a shop with a database.
type till struct {
	*roomtest.Till
	db decorator.Database
}

func newTill(t testing.TB) *till {
	t.Helper()
	s := roomtest.NewTill(t)
	return &till{s, decorator.Database{DB: s.DB, Fence: s.Fence}}
}

// lose loses the lease of the SKU A.
func (s *till) lose(context.Context) error {
	s.Store.Expire("shop/stock:A")
	return nil
}

type txFunc = func(context.Context, *sql.Tx, deduction) (receipt, error)

// sell is a function that writes.
func sell(ctx context.Context, tx *sql.Tx, d deduction) (receipt, error) {
	_, err := tx.ExecContext(ctx, `UPDATE stock SET units = units - $1`, d.Count)
	return receipt{d.Count}, err
}

// run makes one call in a goroutine of its own, which may exit.
func (s *till) run(ctx context.Context, fn txFunc) (out receipt, recovered any, err error) {
	returned := false
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { recovered = recover() }()
		out, err = decorator.WithLockTx(s.Engine, stock, s.db, fn)(ctx, deduction{"A", 2})
		returned = true
	}()
	<-done
	if !returned && recovered == nil {
		recovered = "goexit"
	}
	return out, recovered, err
}
