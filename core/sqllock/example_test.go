package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/sqllock"
)

// Leases in MySQL. The program imports a driver of database/sql, and has run Migrate once.
func Example() {
	db, err := sql.Open("mysql", "app@tcp(127.0.0.1)/shop?interpolateParams=true")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	store, err := sqllock.New(db, sqllock.MySQL)
	if err != nil {
		fmt.Println(err)
		return
	}
	locks, err := core.New(store, core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	err = locks.Do(context.Background(), core.Policy{Key: "report:daily"}, func(ctx context.Context) error {
		return report(ctx)
	})
	if err != nil {
		fmt.Println(err)
	}
}

// A lock that ends with the transaction which it protects.
func ExampleWithTx() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@127.0.0.1/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	err = sqllock.WithTx(ctx, db, sqllock.PostgreSQL, "order:4711", 0, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO invoices (order_id) SELECT 4711 WHERE NOT EXISTS (SELECT 1 FROM invoices WHERE order_id = 4711)`)
		return err
	})
	if errors.Is(err, sqllock.ErrBusy) {
		fmt.Println("somebody else is at it")
	}
}

// For those who run their own migrations.
func ExampleSchema() {
	for _, statement := range sqllock.Schema(sqllock.PostgreSQL) {
		fmt.Println(statement + ";")
	}
}

func report(context.Context) error { return nil }
