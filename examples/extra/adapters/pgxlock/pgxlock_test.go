package pgxlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/examples/extra/adapters/internal/pgtest"
	"github.com/lockaround/lockaround/examples/extra/adapters/pgxlock"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func open(t *testing.T, s *pgtest.Shop) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), s.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// sell makes a sale in a transaction of pgx, by a batch.
func sell(ctx context.Context, tx pgx.Tx, sale pgtest.Sale) (int, error) {
	var left int
	if err := tx.QueryRow(ctx, `SELECT units FROM stock WHERE sku = $1`, sale.SKU).Scan(&left); err != nil {
		return 0, err
	}
	left -= sale.Units
	both := &pgx.Batch{}
	both.Queue(`UPDATE stock SET units = $1 WHERE sku = $2`, left, sale.SKU)
	both.Queue(`SELECT 1`)
	if err := tx.SendBatch(ctx, both).Close(); err != nil {
		return 0, err
	}
	if sale.Inside == nil {
		return left, nil
	}
	return left, sale.Inside(ctx)
}

func TestATransactionOfPgxIsInsideOfTheLock(t *testing.T) {
	pgtest.Suite(t, func(t *testing.T, s *pgtest.Shop, locks *core.Engine) pgtest.Sell {
		return pgxlock.WithLockTx(locks, pgtest.Policy, open(t, s), "", sell)
	})
}

func TestRowsAreCopiedInTheTransaction(t *testing.T) {
	s := pgtest.Open(t)
	soldOut := errors.New("sold out")
	locked := pgxlock.WithLockTx(s.Locks(t), pgtest.Policy, open(t, s), "", func(ctx context.Context, tx pgx.Tx, _ pgtest.Sale) (int64, error) {
		rows, err := tx.CopyFrom(ctx, pgx.Identifier{"stock"}, []string{"sku", "units"}, pgx.CopyFromRows([][]any{{"C", 1}, {"D", 2}}))
		return rows, errors.Join(err, soldOut)
	})
	if rows, err := locked(t.Context(), pgtest.Sale{SKU: "A"}); rows != 2 || !errors.Is(err, soldOut) {
		t.Errorf("%d rows, %v", rows, err)
	}
	var rows int
	if err := s.DB.QueryRowContext(t.Context(), `SELECT count(*) FROM stock`).Scan(&rows); err != nil || rows != 2 {
		t.Errorf("%d rows, %v; want the two from before", rows, err)
	}
}

// TestWhatBecameOfATransactionIsUnknown has functions that end it, and a connection that breaks.
func TestWhatBecameOfATransactionIsUnknown(t *testing.T) {
	for name, end := range map[string]func(context.Context, pgx.Tx) error{
		"committed":                func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		"rolled back":              func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"committed by a statement": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, `COMMIT`); return err },
		"ended by an error": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, `SELECT 1/0`)
			return nil
		},
		"cut off": func(ctx context.Context, tx pgx.Tx) error {
			var pid uint32
			if err := tx.QueryRow(ctx, `SELECT pg_backend_pid()`).Scan(&pid); err != nil {
				return err
			}
			other, err := pgx.ConnectConfig(ctx, tx.Conn().Config())
			if err != nil {
				return err
			}
			_, err = other.Exec(ctx, `SELECT pg_terminate_backend($1, 60000)`, pid)
			return errors.Join(err, other.Close(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := pgtest.Open(t)
			locks, pool := s.Locks(t), open(t, s)
			broken := pgxlock.WithLockTx(locks, pgtest.Policy, pool, "", func(ctx context.Context, tx pgx.Tx, sale pgtest.Sale) (int, error) {
				left, err := sell(ctx, tx, sale)
				return left, errors.Join(err, end(ctx, tx))
			})
			if left, err := broken(t.Context(), pgtest.Sale{SKU: "A", Units: 1}); left != 99 || !errors.Is(err, decorator.ErrCommitUnknown) {
				t.Errorf("%d, %v; want 99 and %v", left, err, decorator.ErrCommitUnknown)
			}
			before := s.Left(t)
			if left, err := pgxlock.WithLockTx(locks, pgtest.Policy, pool, "", sell)(t.Context(), pgtest.Sale{SKU: "A", Units: 1}); left != before-1 || err != nil {
				t.Errorf("the next sale leaves %d of %d: %v", left, before, err)
			}
		})
	}
}

func TestARefusedCommitIsKnown(t *testing.T) {
	s := pgtest.Open(t)
	if _, err := s.DB.ExecContext(t.Context(), `ALTER TABLE stock ADD CONSTRAINT one UNIQUE (units) DEFERRABLE INITIALLY DEFERRED`); err == nil {
		t.Fatal("there are two products of 100 units")
	}
	for _, statement := range []string{`UPDATE stock SET units = 50 WHERE sku = 'B'`, `ALTER TABLE stock ADD CONSTRAINT one UNIQUE (units) DEFERRABLE INITIALLY DEFERRED`} {
		if _, err := s.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	_, err := pgxlock.WithLockTx(s.Locks(t), pgtest.Policy, open(t, s), "", sell)(t.Context(), pgtest.Sale{SKU: "A", Units: 50})
	if err == nil || errors.Is(err, decorator.ErrCommitUnknown) || !strings.Contains(err.Error(), "23505") || s.Left(t) != 100 {
		t.Errorf("%v, and %d are left; want the constraint's own error", err, s.Left(t))
	}
}

func TestWhatCannotWorkIsRefusedAtRegistration(t *testing.T) {
	s := &pgtest.Shop{Store: memlock.New()}
	locks := s.Locks(t)
	for says, c := range map[string]struct {
		policy core.Policy
		table  string
	}{
		"shared or Reentrant": {core.Policy{Key: "stock:{SKU}", Mode: core.Shared}, ""},
		"or Reentrant":        {core.Policy{Key: "stock:{SKU}", Reentrant: true}, ""},
		"did you mean SKU?":   {core.Policy{Key: "stock:{sku}"}, ""},
		"fence table":         {core.Policy{Key: "stock:{SKU}"}, "no table"},
	} {
		func() {
			defer func() {
				if err, _ := recover().(error); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%v; want %q", err, says)
				}
			}()
			pgxlock.WithLockTx(locks, c.policy, nil, c.table, sell)
		}()
	}
	pgxlock.WithLockTx(locks, core.Policy{Name: "sale", Key: "sale:{SKU}"}, nil, "", sell)
	if err := locks.ReplaceOverrides(map[string]core.Override{"sale": {Mode: new(core.Shared)}}); err == nil {
		t.Error("an override makes the lock one that readers share")
	}
}
