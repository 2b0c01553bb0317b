package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/decorator"
)

type caller struct{}

func TestTransactionIsTheOneThatBeginBegins(t *testing.T) {
	till := newTill(t)
	till.db.TxOptions = &sql.TxOptions{Isolation: sql.LevelSerializable}
	var begun *sql.Tx
	till.db.Begin = func(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
		if o != till.db.TxOptions || ctx.Value(caller{}) != "7" || ctx.Done() == nil {
			t.Errorf("Begin gets %v and %v", ctx, o)
		}
		var err error
		begun, err = till.db.DB.BeginTx(ctx, nil)
		return begun, err
	}
	locked := decorator.WithLockTx(till.Engine, stock, till.db, func(ctx context.Context, tx *sql.Tx, d deduction) (receipt, error) {
		if tx != begun {
			t.Error("the function gets another transaction")
		}
		return sell(ctx, tx, d)
	})
	if _, err := locked(context.WithValue(t.Context(), caller{}, "7"), deduction{"A", 2}); err != nil {
		t.Fatal(err)
	}
	if got, want := till.All(), "begin admit exec check commit release"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func TestWithoutATransactionFromBeginNothingRuns(t *testing.T) {
	refused := errors.New("too many connections")
	for want, begin := range map[string]func(context.Context, *sql.TxOptions) (*sql.Tx, error){
		refused.Error():           func(context.Context, *sql.TxOptions) (*sql.Tx, error) { return nil, refused },
		"returned no transaction": func(context.Context, *sql.TxOptions) (*sql.Tx, error) { return nil, nil },
	} {
		till := newTill(t)
		till.db.Begin = begin
		_, recovered, err := till.run(t.Context(), func(context.Context, *sql.Tx, deduction) (receipt, error) {
			t.Error("the function ran without a transaction")
			return receipt{}, nil
		})
		if recovered != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", recovered, err, want)
		}
		if got := till.All(); got != "release" {
			t.Errorf("%s; want the lock to be released, and no more", got)
		}
	}
}
