package sqlqueue_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
	"github.com/lockaround/lockaround/decorator/serial"
)

// Refund is what is queued.
type Refund struct{ ID, OrderID string }

// Refunds of an order, one after the other. The program imports a driver of database/sql.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://app@127.0.0.1/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer db.Close()
	if err := sqlqueue.Migrate(ctx, db, sqlqueue.PostgreSQL); err != nil {
		fmt.Println(err)
		return
	}
	store, err := sqlqueue.New(db, sqlqueue.PostgreSQL)
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
	refunds := serial.Must(locks, core.Policy{Key: "refund:{OrderID}", TTL: 10 * time.Second}, store, refund,
		serial.Policy{Spacing: 2 * time.Second})

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if _, err := tx.ExecContext(ctx, `UPDATE orders SET state = 'returned' WHERE id = 'A-1'`); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := refunds.EnqueueTx(ctx, tx, Refund{ID: "r-17", OrderID: "A-1"}, serial.ItemID("r-17")); err != nil {
		fmt.Println(err)
		return
	}
	if err := tx.Commit(); err != nil {
		fmt.Println(err)
	}
}

func refund(context.Context, Refund) error { return nil }

// For those who run their own migrations.
func ExampleSchema() {
	for _, statement := range sqlqueue.Schema(sqlqueue.MySQL) {
		fmt.Println(statement + ";")
	}
}
