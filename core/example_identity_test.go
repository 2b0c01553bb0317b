package core_test

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func ExampleWithIdentity() {
	store := memlock.New()
	orders, _ := core.New(store, core.WithNamespace("shop"), core.WithIdentity("orders-7f9c"))
	defer orders.Close()
	tool, _ := core.New(store, core.WithNamespace("shop"))
	defer tool.Close()

	_ = orders.Do(context.Background(), core.Policy{Key: "stock:42"}, func(ctx context.Context) error {
		st, err := tool.Inspect(ctx, "stock:42")
		for _, h := range st.Holders {
			fmt.Println(h.Identity, "holds it")
		}
		return err
	})
	// Output: orders-7f9c holds it
}
