package core_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

type Refund struct {
	Tenant string
	Order  struct{ ID int64 }
}

func ExampleNewGuard() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()

	refunds, err := core.NewGuard(locks, core.Policy{Key: "refund:{Tenant}:{Order.ID}"}, core.Fields[Refund]())
	if err != nil {
		panic(err)
	}
	r := Refund{Tenant: "north/east"}
	r.Order.ID = 17
	err = refunds.Do(context.Background(), r, func(ctx context.Context) error {
		lease, _ := core.LeaseFrom(ctx)
		fmt.Println("refunding under", lease.Key())
		return nil
	})
	fmt.Println(err)

	r.Tenant = ""
	err = refunds.Do(context.Background(), r, func(context.Context) error { return nil })
	fmt.Println(errors.Is(err, core.ErrKey), err)
	// Output:
	// refunding under refund:north%2Feast:17
	// <nil>
	// true lock acquire "refund:{Tenant}:{Order.ID}": invalid lock key: {Tenant}: value is missing or empty
}

// Enter is for functions that Do does not fit.
func ExampleGuard_Enter() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()
	refunds, err := core.NewGuard(locks, core.Policy{Key: "refund:{Order.ID}"}, core.Fields[Refund]())
	if err != nil {
		panic(err)
	}

	refund := func(ctx context.Context, r Refund) (receipt string, err error) {
		section, err := refunds.Enter(ctx, r)
		if err != nil {
			return "", err
		}
		defer section.Leave(&err)
		lease, _ := core.LeaseFrom(section.Context())
		return "refunded under " + lease.Key(), nil
	}
	r := Refund{}
	r.Order.ID = 17
	fmt.Println(refund(context.Background(), r))
	// Output: refunded under refund:17 <nil>
}

// A list in a template is a key for each of its elements: all or none, and in one order for all
// carts.
func ExampleNewGuard_list() {
	type Cart struct {
		ID    int
		Items []struct{ SKU string }
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()

	carts, err := core.NewGuard(locks, core.Policy{Name: "cart", Keys: []string{"cart:{ID}", "stock:{Items[].SKU}"}}, core.Fields[Cart]())
	if err != nil {
		panic(err)
	}
	cart := Cart{ID: 7, Items: []struct{ SKU string }{{"B-2"}, {"A-1"}, {"B-2"}}}
	fmt.Println(carts.Do(context.Background(), cart, func(ctx context.Context) error {
		lease, _ := core.LeaseFrom(ctx)
		fmt.Println(lease.Keys())
		return nil
	}))

	cart.Items[1].SKU = ""
	fmt.Println(carts.Do(context.Background(), cart, func(context.Context) error { return nil }))
	// Output:
	// [cart:7 stock:A-1 stock:B-2]
	// <nil>
	// lock acquire "cart": invalid lock key: {Items[1].SKU}: value is missing or empty
}

// A resolver of one's own reads values from any source.
func ExampleResolver() {
	labels := func(name string) (core.Accessor[map[string]string], error) {
		if name == "" || name[0] == '_' {
			return nil, errors.New("labels begin with a letter")
		}
		return func(dst []byte, src map[string]string) ([]byte, error) {
			return append(dst, src[name]...), nil // no label appends nothing, which is ErrMissing
		}, nil
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("jobs:example"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()

	_, err = core.NewGuard(locks, core.Policy{Name: "job", Key: "job:{_id}"}, labels)
	fmt.Println(err)

	jobs, err := core.NewGuard(locks, core.Policy{Name: "job", Key: "job:{queue}:{id}"}, labels)
	if err != nil {
		panic(err)
	}
	lease, err := jobs.Acquire(context.Background(), map[string]string{"queue": "mail", "id": "7"})
	if err != nil {
		panic(err)
	}
	fmt.Println(lease.Key())
	fmt.Println(lease.Release(context.Background()))
	// Output:
	// lock compile "job": invalid lock policy: Key "job:{_id}", column 5: {_id}: labels begin with a letter
	// job:mail:7
	// <nil>
}

func ExampleEscape() {
	fmt.Println("stock:" + core.Escape("A-1"))
	fmt.Println("stock:" + core.Escape("A:1/é"))
	// Output:
	// stock:A-1
	// stock:A%3A1%2F%C3%A9
}
