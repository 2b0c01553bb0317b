package twinlock_test

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/twinlock"
)

// A service moves from one store to another: while it is rolled out, it takes both.
func Example() {
	oldStore, newStore := memlock.New(), memlock.New() // say, redislock.New(…) and etcdlock.New(…)
	locks, err := core.New(twinlock.New(oldStore, newStore), core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()

	err = locks.Do(context.Background(), core.Policy{Key: "report:daily"}, func(context.Context) error {
		fmt.Println("held in both stores")
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: held in both stores
}
