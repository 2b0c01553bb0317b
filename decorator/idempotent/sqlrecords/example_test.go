package sqlrecords_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/sqlrecords"
)

// Payment is what a client asks for, and may send again.
type Payment struct {
	Account, RequestID string
	Cents              int
}

// Receipt is what it gets.
type Receipt struct{ Cents int }

// A payment and its record are committed together. The program imports a driver of database/sql.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@127.0.0.1/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if err := sqlrecords.Migrate(ctx, db, sqlrecords.PostgreSQL); err != nil {
		fmt.Println(err)
		return
	}
	records, err := sqlrecords.New(db, sqlrecords.PostgreSQL, "shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop")) // elsewhere, redislock or sqllock
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	pay := idempotent.Must(locks, core.Policy{Key: "pay:{Account}:{RequestID}"}, records, charge,
		idempotent.Policy{Died: idempotent.Tx})
	for range 2 { // the client sends it again
		fmt.Println(pay.Call(ctx, Payment{"A-1", "8e03978e", 100}))
	}
}

func charge(ctx context.Context, p Payment) (Receipt, error) {
	var left Receipt
	err := idempotent.TxFrom(ctx).QueryRowContext(ctx,
		`UPDATE account SET cents = cents - $1 WHERE id = $2 RETURNING cents`, p.Cents, p.Account).Scan(&left.Cents)
	return left, err
}
