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

// What a configuration states replaces what the program says, by the policy's name.
func ExampleWithOverrides() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"), core.WithOverrides(map[string]core.Override{
		"report": {TTL: new(time.Minute)},
		"stok":   {Wait: new(2 * time.Second)},
	}))
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()

	report, err := core.NewGuard(locks, core.Policy{Name: "report", Key: "report:{.}", Wait: time.Second}, core.Fields[string]())
	if err != nil {
		panic(err)
	}
	fmt.Println(report.Policy().Wait, report.Policy().TTL)
	_, err = core.NewGuard(locks, core.Policy{Name: "stock", Key: "stock:{.}"}, core.Fields[string]())
	if err != nil {
		panic(err)
	}
	fmt.Println(locks.CheckOverrides())
	// Output:
	// 1s 1m0s
	// lock override "stok": invalid lock policy: no policy has this name; did you mean "stock"? (memory)
}

// A service states its times once, and a policy what is different about it.
func ExampleWithDefaults() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"),
		core.WithDefaults(core.Defaults{Wait: 2 * time.Second, MaxHold: time.Minute}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	for _, p := range []core.Policy{
		{Key: "stock:{.}"},
		{Key: "refund:{.}", Wait: core.TryOnce, MaxHold: core.Forever},
	} {
		guard, err := core.NewGuard(locks, p, core.Fields[string]())
		if err != nil {
			fmt.Println(err)
			return
		}
		p = guard.Policy()
		fmt.Println(p.Name, p.Wait, p.TTL, p.MaxHold)
	}
	// Output:
	// stock:{.} 2s 30s 1m0s
	// refund:{.} 0s 30s 0s
}
