package gormlock_test

import (
	"context"
	"errors"
	"testing"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/extra/adapters/gormlock"
	"github.com/lockaround/lockaround/examples/extra/adapters/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// stock is a row, whose hook runs in the transaction that writes it.
type stock struct {
	SKU   string `gorm:"primaryKey"`
	Units int
}

func (stock) TableName() string { return "stock" }

func open(t *testing.T, s *pgtest.Shop, o *gorm.Config) *gorm.DB {
	t.Helper()
	own := *o // GORM writes to it, and each pool has one
	own.Logger = logger.Discard
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: s.DB}), &own)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// sell makes a sale in a transaction of GORM.
func sell(_ context.Context, tx *gorm.DB, sale pgtest.Sale) (int, error) {
	var row stock
	if err := tx.First(&row, "sku = ?", sale.SKU).Error; err != nil {
		return 0, err
	}
	row.Units -= sale.Units
	if err := tx.Save(&row).Error; err != nil {
		return 0, err
	}
	if sale.Inside == nil {
		return row.Units, nil
	}
	return row.Units, sale.Inside(tx.Statement.Context)
}

func TestATransactionOfGORMIsInsideOfTheLock(t *testing.T) {
	for name, o := range map[string]*gorm.Config{"as it comes": {}, "with prepared statements": {PrepareStmt: true}} {
		t.Run(name, func(t *testing.T) {
			pgtest.Suite(t, func(t *testing.T, s *pgtest.Shop, locks *core.Engine) pgtest.Sell {
				return gormlock.WithLockTx(locks, pgtest.Policy, open(t, s, o), decorator.Database{Fence: s.Fence}, sell)
			})
		})
	}
}

func TestATransactionInsideIsASavepoint(t *testing.T) {
	s := pgtest.Open(t)
	undone := errors.New("undone")
	locked := gormlock.WithLockTx(s.Locks(t), pgtest.Policy, open(t, s, &gorm.Config{}), decorator.Database{Fence: s.Fence},
		func(ctx context.Context, tx *gorm.DB, sale pgtest.Sale) (int, error) {
			err := tx.Transaction(func(inner *gorm.DB) error {
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
	locked := gormlock.WithLockTx(s.Locks(t), pgtest.Policy, open(t, s, &gorm.Config{}), decorator.Database{Fence: s.Fence},
		func(ctx context.Context, tx *gorm.DB, sale pgtest.Sale) (int, error) {
			left, err := sell(ctx, tx, sale)
			return left, errors.Join(err, tx.Commit().Error)
		})
	if _, err := locked(t.Context(), pgtest.Sale{SKU: "A", Units: 1}); !errors.Is(err, decorator.ErrCommitUnknown) {
		t.Errorf("%v; want %v", err, decorator.ErrCommitUnknown)
	}
}

func TestWithoutAFenceNothingIsMade(t *testing.T) {
	s := pgtest.Open(t)
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("%v; want %v", err, core.ErrPolicy)
		}
	}()
	gormlock.WithLockTx(s.Locks(t), pgtest.Policy, open(t, s, &gorm.Config{}), decorator.Database{}, sell)
}
