package core_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func ExampleEngine_Do() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	err = locks.Do(context.Background(), core.Policy{Key: "report:daily", Wait: time.Second}, func(ctx context.Context) error {
		fmt.Println("nobody else writes the report")
		return nil
	})
	fmt.Println(err)
	// Output:
	// nobody else writes the report
	// <nil>
}

func ExampleEngine_Acquire() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"))
	if err != nil {
		panic(err)
	}
	defer locks.Close()

	ctx := context.Background()
	sku := "A:1"
	lease, err := locks.Acquire(ctx, core.Policy{Key: "stock:" + core.Escape(sku)})
	if err != nil {
		panic(err)
	}
	_, err = locks.Acquire(ctx, core.Policy{Key: "stock:" + core.Escape(sku), Name: "stock"})
	fmt.Println(err)
	fmt.Println(errors.Is(err, core.ErrBusy))
	fmt.Println(lease.Key(), lease.Err(), lease.Release(ctx))
	// Output:
	// lock acquire "stock": lock is busy (memory)
	// true
	// stock:A%3A1 <nil> <nil>
}
