package decorator_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

// openShop opens what is sql.Open("pgx", url) elsewhere.
func openShop() *sql.DB { return new(roomtest.Journal).OpenDB() }

func ExampleWithLockTx() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()
	shop := openShop()
	defer func() { _ = shop.Close() }()

	tokens, err := fence.NewSQL(fence.PostgreSQL, "") // and once, tokens.Migrate(ctx, shop)
	if err != nil {
		panic(err)
	}
	deduct := decorator.WithLockTx(locks, core.Policy{Key: "stock:{SKU}", Wait: core.Forever},
		decorator.Database{DB: shop, Fence: tokens},
		func(ctx context.Context, tx *sql.Tx, d Deduct) (int64, error) {
			done, err := tx.ExecContext(ctx, `UPDATE stock SET units = units - $1 WHERE sku = $2 AND units >= $1`, d.Count, d.SKU)
			if err != nil {
				return 0, err
			}
			return done.RowsAffected()
		})

	rows, err := deduct(context.Background(), Deduct{SKU: "A-1", Count: 2})
	switch {
	case errors.Is(err, decorator.ErrCommitUnknown):
		fmt.Println("look at the stock before you try again")
	case errors.Is(err, core.ErrLost), errors.Is(err, fence.ErrStale):
		fmt.Println("rolled back; try again")
	default:
		fmt.Println(rows, err)
	}
	// Output:
	// 1 <nil>
}

// rows is a library's own transaction.
type rows struct{ *sql.Tx }

// Set is what the library adds.
func (r rows) Set(ctx context.Context, table, column string, value any) error {
	_, err := r.ExecContext(ctx, `UPDATE `+table+` SET `+column+` = $1`, value)
	return err
}

type rowsKey struct{}

// A library with a transaction type of its own begins the transactions.
func ExampleDatabase_begin() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()
	shop := openShop()
	defer func() { _ = shop.Close() }()

	tokens, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		panic(err)
	}
	library := decorator.Database{DB: shop, Fence: tokens, Begin: func(ctx context.Context, o *sql.TxOptions) (*sql.Tx, error) {
		tx, err := shop.BeginTx(ctx, o) // the library's own Begin, elsewhere
		if err == nil {
			*ctx.Value(rowsKey{}).(*rows) = rows{tx}
		}
		return tx, err
	}}
	restock := decorator.WithLockTx(locks, core.Policy{Key: "stock:{SKU}"}, library,
		func(ctx context.Context, _ *sql.Tx, d Deduct) (int, error) {
			return d.Count, ctx.Value(rowsKey{}).(*rows).Set(ctx, "stock", "units", d.Count)
		})

	ctx := context.WithValue(context.Background(), rowsKey{}, &rows{})
	fmt.Println(restock(ctx, Deduct{SKU: "A-1", Count: 7}))
	// Output:
	// 7 <nil>
}
