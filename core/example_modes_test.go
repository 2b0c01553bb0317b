package core_test

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func newLocks() *core.Engine {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	return locks
}

// Readers hold together, a writer alone, and a writer that is done with writing may
// go on as a reader.
func ExampleLease_Downgrade() {
	locks := newLocks()
	defer locks.Close()
	ctx := context.Background()

	writer, err := locks.Acquire(ctx, core.Policy{Key: "prices"})
	if err != nil {
		panic(err)
	}
	reading := core.Policy{Key: "prices", Name: "read prices", Mode: core.Shared}
	_, err = locks.Acquire(ctx, reading)
	fmt.Println(err)

	if err := writer.Downgrade(ctx); err != nil {
		panic(err)
	}
	reader, err := locks.Acquire(ctx, reading)
	fmt.Println(err)
	_ = reader.Release(ctx)
	_ = writer.Release(ctx)
	// Output:
	// lock acquire "read prices": lock is busy (memory)
	// <nil>
}

// At most three exports run at a time, in all processes together.
func ExamplePolicy_semaphore() {
	locks := newLocks()
	defer locks.Close()
	ctx := context.Background()
	export := core.Policy{Key: "exports", Mode: core.Semaphore, Limit: 3}
	for range 4 {
		lease, err := locks.Acquire(ctx, export)
		if err != nil {
			fmt.Println(err)
			continue
		}
		defer func() { _ = lease.Release(ctx) }()
		fmt.Println("exporting")
	}
	// Output:
	// exporting
	// exporting
	// exporting
	// lock acquire of a literal key without a Policy.Name: lock is busy (memory)
}

// Both accounts are locked or none, whichever way the money goes.
func ExamplePolicy_keys() {
	locks := newLocks()
	defer locks.Close()
	type transfer struct{ From, To string }
	guard, err := core.NewGuard(locks, core.Policy{Keys: []string{"account:{From}", "account:{To}"}}, core.Fields[transfer]())
	if err != nil {
		panic(err)
	}
	err = guard.Do(context.Background(), transfer{From: "7", To: "3"}, func(ctx context.Context) error {
		lease, _ := core.LeaseFrom(ctx)
		fmt.Println(lease.Keys(), lease.TokenOf("account:3") > 0, lease.TokenOf("account:7") > 0)
		return core.AssertHeld(ctx, "account:7") // as code deep inside would
	})
	fmt.Println(err)
	// Output:
	// [account:3 account:7] true true
	// <nil>
}

func ExampleEngine_Inspect() {
	locks := newLocks()
	defer locks.Close()
	ctx := context.Background()
	lease, err := locks.Acquire(ctx, core.Policy{Key: "report:daily"})
	if err != nil {
		panic(err)
	}
	defer func() { _ = lease.Release(ctx) }()
	state, err := locks.Inspect(ctx, "report:daily")
	if err != nil {
		panic(err)
	}
	for _, h := range state.Holders {
		fmt.Println(h.Mode, h.Token == lease.Token(), h.Remaining > 0, state.Waiting)
	}
	// Output: exclusive true true 0
}
