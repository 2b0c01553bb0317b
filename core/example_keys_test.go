package core_test

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func ExampleEngine_Keys() {
	ctx := context.Background()
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithIdentity("orders-7f9c"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()
	err = locks.Do(ctx, core.Policy{Key: "stock:42"}, func(ctx context.Context) error {
		for k, err := range locks.Keys(ctx, "stock:") {
			if err != nil {
				return err
			}
			fmt.Println(k.Key, "is held by", k.Holders[0].Identity, "and", k.Waiting, "wait")
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	// Output: stock:42 is held by orders-7f9c and 0 wait
}
