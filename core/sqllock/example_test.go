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

// A lock in a transaction that begins and ends elsewhere.
func ExampleInTx() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@127.0.0.1/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback() }() // which ends the lock, unless COMMIT has
	if err := sqllock.InTx(ctx, tx, sqllock.PostgreSQL, "order:4711", sqllock.Forever); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET paid = true WHERE id = 4711`); err != nil {
		fmt.Println(err)
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
	}
}

// At start-up, by every process: the tables are created once.
func ExampleMigrate() {
	db, err := sql.Open("pgx", "postgres://app@127.0.0.1/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if err := sqllock.Migrate(context.Background(), db, sqllock.PostgreSQL); err != nil {
		fmt.Println(err)
	}
}
