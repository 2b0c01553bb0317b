package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
)

// A write that comes after the next holder's is refused.
func ExampleMemory_Do() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	var guard fence.Memory // beside what it guards
	units := 10

	var late fence.Token // of a holder that is paused before it writes
	_ = locks.Do(context.Background(), core.Policy{Key: "stock:book"}, func(ctx context.Context) error {
		late, err = fence.For(ctx, "stock:book")
		return err
	})
	err = locks.Do(context.Background(), core.Policy{Key: "stock:book"}, func(ctx context.Context) error {
		token, err := fence.For(ctx, "stock:book")
		if err != nil {
			return err
		}
		return guard.Do(ctx, token, func() error { units--; return nil })
	})
	fmt.Println("the next holder:", err, units)

	err = guard.Do(context.Background(), late, func() error { units = 9; return nil })
	fmt.Println("the late one is stale:", errors.Is(err, fence.ErrStale), units)
	// Output:
	// the next holder: <nil> 9
	// the late one is stale: true 9
}
