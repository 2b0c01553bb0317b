package fence_test

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core/fence"
)

// The table for those who run their own migrations; Migrate creates it for others.
func ExampleSQL_Schema() {
	f, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		panic(err)
	}
	fmt.Println(f.Schema())
	// Output:
	// CREATE TABLE IF NOT EXISTS "lockaround_fence" (
	//     lock_key   bytea       NOT NULL PRIMARY KEY CHECK (length(lock_key) BETWEEN 1 AND 1024),
	//     token      bigint      NOT NULL,
	//     written_at timestamptz NOT NULL DEFAULT clock_timestamp()
	// ) WITH (fillfactor = 70)
}

// A transaction of pgx has an Exec of its own, which this one stands for.
func ExampleAdmitBy() {
	tokens, err := fence.NewSQL(fence.PostgreSQL, "")
	if err != nil {
		panic(err)
	}
	exec := func(_ context.Context, _ string, args ...any) (rows, error) {
		fmt.Printf("%s has the token %d\n", args...)
		return 1, nil
	}
	token := fence.Token{Key: "stock:A-1", Number: 1024} // fence.Of(lease) has them
	fmt.Println(fence.AdmitBy(context.Background(), tokens, exec, token))
	// Output:
	// stock:A-1 has the token 1024
	// <nil>
}

// Where a lock protects single rows the token may be in the row itself. Update executes
// this statement, and tells a stale token from a row that is not there.
func ExampleColumn_Statement() {
	stock, err := fence.NewColumn(fence.PostgreSQL, "stock", "sku", "fence")
	if err != nil {
		panic(err)
	}
	token := fence.Token{Key: "stock:A-1", Number: 1024} // fence.For(ctx, "stock:A-1")
	statement, args := stock.Statement(token, "A-1", "units = units - $1", 2)
	fmt.Println(statement)
	fmt.Println(args...)
	// Output:
	// UPDATE "stock" SET units = units - $1, "fence" = $2 WHERE "sku" = $3 AND "fence" <= $2
	// 2 1024 A-1
}
