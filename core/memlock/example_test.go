package memlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// Two engines on one Driver exclude each other, like two replicas of a service.
func Example() {
	store := memlock.New()
	one, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer one.Close()
	two, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer two.Close()

	ctx := context.Background()
	policy := core.Policy{Key: "report:daily"}
	err = one.Do(ctx, policy, func(ctx context.Context) error {
		err := two.Do(context.Background(), policy, func(context.Context) error { return nil })
		fmt.Println("meanwhile, the other replica: busy is", errors.Is(err, core.ErrBusy))
		return nil
	})
	fmt.Println(err)
	fmt.Println(two.Do(ctx, policy, func(context.Context) error { return nil }))
	// Output:
	// meanwhile, the other replica: busy is true
	// <nil>
	// <nil>
}

// How a program behaves when it loses its lock is testable without waiting.
func ExampleDriver_Expire() {
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	err = locks.Do(context.Background(), core.Policy{Key: "stock:42"}, func(ctx context.Context) error {
		store.Expire("shop/stock:42")
		<-ctx.Done()
		fmt.Println("lost:", errors.Is(context.Cause(ctx), core.ErrLost))
		return nil
	})
	fmt.Println("told:", errors.Is(err, core.ErrLost))
	// Output:
	// lost: true
	// told: true
}

func ExampleDriver_Fail() {
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	store.Fail(errors.New("connection refused"))
	err = locks.Do(context.Background(), core.Policy{Key: "stock:42"}, func(context.Context) error {
		panic("never run without the lock")
	})
	fmt.Println(errors.Is(err, core.ErrUnavailable))

	store.Heal()
	fmt.Println(locks.Ping(context.Background()))
	// Output:
	// true
	// <nil>
}

func ExampleWithClock() {
	clock := memlock.NewClock(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	store := memlock.New(memlock.WithClock(clock))
	locks, err := core.New(store, core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	ctx := context.Background()
	lease, err := locks.Acquire(ctx, core.Policy{Key: "stock:42", TTL: time.Minute})
	if err != nil {
		panic(err)
	}
	clock.Advance(time.Hour) // the store's clock: it has not heard from the holder for too long
	fmt.Println("still held:", lease.Check(ctx) == nil)
	_ = lease.Release(ctx)
	// Output:
	// still held: false
}
