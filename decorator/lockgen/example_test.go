package main

import (
	"context"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/lockgen/testdata/good/shelf"
)

// The method Deduct of Shelf has the directive
//
//	//lock:with "shelf:{sku}"
func Example() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()

	next := &shelf.Shelf{Left: map[string]int{"A-1": 3}, Held: func(ctx context.Context) {
		lease, _ := core.LeaseFrom(ctx)
		fmt.Println("holding", lease.Key())
	}}
	s, err := shelf.NewShelfWithLock(locks, next)
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Deduct(context.Background(), "A-1"))
	fmt.Println(s.Deduct(context.Background(), ""))
	// Output:
	// holding shelf:A-1
	// 2 <nil>
	// 0 lock acquire "shelf:{sku}": invalid lock key: {sku}: value is missing or empty
}
