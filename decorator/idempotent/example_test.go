package idempotent_test

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/idempotent"
)

func ExampleMust() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()

	type Payment struct {
		Account, RequestID string
		Cents              int
	}
	balance := 1000
	charge := func(_ context.Context, p Payment) (int, error) {
		balance -= p.Cents
		return balance, nil
	}
	pay := idempotent.Must(locks, core.Policy{Key: "pay:{Account}:{RequestID}"}, idempotent.NewMemory(10_000), charge,
		idempotent.Policy{Died: idempotent.Refuse})
	for range 2 { // the client sends it again
		fmt.Println(pay.Call(context.Background(), Payment{"A-1", "8e03978e", 100}))
	}
	// Output:
	// 900 <nil>
	// 900 <nil>
}
