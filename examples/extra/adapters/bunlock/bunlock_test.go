package bunlock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/extra/adapters/bunlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

type stock struct {
	bun.BaseModel `bun:"table:stock"`

	SKU   string `bun:"sku,pk"`
	Units int    `bun:"units"`
}

func open(s *pgtest.Shop) *bun.DB { return bun.NewDB(s.DB, pgdialect.New()) }

// sell makes a sale in a transaction of bun.
func sell(ctx context.Context, tx bun.Tx, sale pgtest.Sale) (int, error) {
	var row stock
	if err := tx.NewSelect().Model(&row).Where("sku = ?", sale.SKU).Scan(ctx); err != nil {
		return 0, err
	}
	row.Units -= sale.Units
	if _, err := tx.NewUpdate().Model(&row).WherePK().Exec(ctx); err != nil {
		return 0, err
	}
	if sale.Inside == nil {
		return row.Units, nil
	}
	return row.Units, sale.Inside(ctx)
}

func TestATransactionOfBunIsInsideOfTheLock(t *testing.T) {
	pgtest.Suite(t, func(t *testing.T, s *pgtest.Shop, locks *core.Engine) pgtest.Sell {
		return bunlock.WithLockTx(locks, pgtest.Policy, open(s), decorator.Database{Fence: s.Fence}, sell)
	})
}

func TestATransactionInsideIsASavepoint(t *testing.T) {
	s := pgtest.Open(t)
	undone := errors.New("undone")
	locked := bunlock.WithLockTx(s.Locks(t), pgtest.Policy, open(s), decorator.Database{Fence: s.Fence},
		func(ctx context.Context, tx bun.Tx, sale pgtest.Sale) (int, error) {
			err := tx.RunInTx(ctx, nil, func(ctx context.Context, inner bun.Tx) error {
				_, err := sell(ctx, inner, pgtest.Sale{SKU: sale.SKU, Units: 50})
				return errors.Join(err, undone)
			})
			if !errors.Is(err, undone) {
				t.Error(err)
			}
			return sell(ctx, tx, sale)
		})
	if left, err := locked(t.Context(), pgtest.Sale{SKU: "A", Units: 1}); left != 99 || err != nil || s.Left(t) != 99 {
		t.Errorf("%d units are left: %v; want 99", left, err)
	}
}

func TestAFunctionThatCommitsIsFoundOut(t *testing.T) {
	s := pgtest.Open(t)
	locked := bunlock.WithLockTx(s.Locks(t), pgtest.Policy, open(s), decorator.Database{Fence: s.Fence},
		func(ctx context.Context, tx bun.Tx, sale pgtest.Sale) (int, error) {
			left, err := sell(ctx, tx, sale)
			return left, errors.Join(err, tx.Commit())
		})
	if _, err := locked(t.Context(), pgtest.Sale{SKU: "A", Units: 1}); !errors.Is(err, decorator.ErrCommitUnknown) {
		t.Errorf("%v; want %v", err, decorator.ErrCommitUnknown)
	}
}

func TestTheTransactionHasItsOptions(t *testing.T) {
	s := pgtest.Open(t)
	d := decorator.Database{Fence: s.Fence, TxOptions: &sql.TxOptions{Isolation: sql.LevelSerializable}}
	level := bunlock.WithLockTx(s.Locks(t), pgtest.Policy, open(s), d, func(ctx context.Context, tx bun.Tx, _ pgtest.Sale) (level string, err error) {
		err = tx.NewRaw(`SELECT current_setting('transaction_isolation')`).Scan(ctx, &level)
		return level, err
	})
	if got, err := level(t.Context(), pgtest.Sale{SKU: "A"}); got != "serializable" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestADatabaseThatIsGoneRunsNothing(t *testing.T) {
	s := pgtest.Open(t)
	gone, err := sql.Open("pgx", s.URL)
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	locked := bunlock.WithLockTx(s.Locks(t), pgtest.Policy, bun.NewDB(gone, pgdialect.New()), decorator.Database{Fence: s.Fence},
		func(context.Context, bun.Tx, pgtest.Sale) (int, error) {
			t.Error("the function ran without a transaction")
			return 0, nil
		})
	if _, err := locked(t.Context(), pgtest.Sale{SKU: "A"}); err == nil {
		t.Error("no error")
	}
}

func TestWithoutAFenceNothingIsMade(t *testing.T) {
	s := pgtest.Open(t)
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("%v; want %v", err, core.ErrPolicy)
		}
	}()
	bunlock.WithLockTx(s.Locks(t), pgtest.Policy, open(s), decorator.Database{}, sell)
}
