package twinlock_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
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

// Each step of the roll-out excludes those that use the old store alone, and those that use
// the new one alone.
func ExampleNew() {
	oldStore, newStore := memlock.New(), memlock.New()
	ctx, policy := context.Background(), core.Policy{Name: "report", Key: "report:daily"}
	engine := func(store driver.Driver) *core.Engine {
		locks, err := core.New(store, core.WithNamespace("shop:prod"))
		if err != nil {
			panic(err)
		}
		return locks
	}
	before, during, after := engine(oldStore), engine(twinlock.New(oldStore, newStore)), engine(newStore)
	defer func() { _, _, _ = before.Close(), during.Close(), after.Close() }()

	err := during.Do(ctx, policy, func(context.Context) error {
		for _, locks := range []*core.Engine{before, after} {
			err := locks.Do(context.Background(), policy, func(context.Context) error { return nil })
			fmt.Println("kept out:", errors.Is(err, core.ErrBusy))
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// kept out: true
	// kept out: true
	// <nil>
}
