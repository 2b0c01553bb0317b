package decorator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
)

type Deduct struct {
	SKU   string
	Count int
}

// Shelf is a service that knows nothing of locks.
type Shelf struct{ left map[string]int }

func (s *Shelf) Deduct(_ context.Context, d Deduct) (int, error) {
	if s.left[d.SKU] < d.Count {
		return 0, errors.New("sold out")
	}
	s.left[d.SKU] -= d.Count
	return s.left[d.SKU], nil
}

func newLocks() *core.Engine {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	return locks
}

func ExampleWithLock() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	shelf := &Shelf{left: map[string]int{"A-1": 3}}
	deduct := decorator.WithLock(locks, core.Policy{Key: "stock:{SKU}", Wait: core.Forever}, shelf.Deduct)

	fmt.Println(deduct(context.Background(), Deduct{SKU: "A-1", Count: 2}))
	fmt.Println(deduct(context.Background(), Deduct{SKU: "A-1", Count: 2}))
	fmt.Println(deduct(context.Background(), Deduct{Count: 1}))
	// Output:
	// 1 <nil>
	// 0 sold out
	// 0 lock acquire "stock:{SKU}": invalid lock key: {SKU}: value is missing or empty
}

type Cart struct {
	Items  []Deduct
	Sample bool
}

// A cart of several products has the lock of each, in one order for all carts.
func ExampleWithLock_list() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	order := decorator.WithLock(locks, core.Policy{Keys: []string{"stock:{Items[].SKU}"}}, func(ctx context.Context, _ Cart) ([]string, error) {
		lease, _ := core.LeaseFrom(ctx)
		return lease.Keys(), nil
	})
	fmt.Println(order(context.Background(), Cart{Items: []Deduct{{SKU: "B-2"}, {SKU: "A-1"}, {SKU: "B-2"}}}))
	_, err := order(context.Background(), Cart{})
	fmt.Println(err)
	// Output:
	// [stock:A-1 stock:B-2] <nil>
	// lock acquire "stock:{Items[].SKU}": invalid lock key: {Items[].SKU}: list is empty; set Policy.AllowEmpty if such a call needs no lock
}

// Calls that change nothing need no lock.
func ExampleWhen() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	order := decorator.WithLockErr(locks, core.Policy{Keys: []string{"stock:{Items[].SKU}"}}, func(ctx context.Context, c Cart) error {
		_, held := core.LeaseFrom(ctx)
		fmt.Println("sample:", c.Sample, "locked:", held)
		return nil
	}, decorator.When(func(c Cart) bool { return !c.Sample }))

	cart := Cart{Items: []Deduct{{SKU: "A-1"}}}
	fmt.Println(order(context.Background(), cart))
	cart.Sample = true
	fmt.Println(order(context.Background(), cart))
	// Output:
	// sample: false locked: true
	// <nil>
	// sample: true locked: false
	// <nil>
}

type Parcel struct {
	Order struct {
		ID int64 `lock:"id"`
	} `lock:"order"`
}

// Fields can be named by a tag.
func ExampleWithLock_tags() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	send := decorator.WithLock(locks, core.Policy{Key: "parcel:{order.id}"}, func(ctx context.Context, p Parcel) (string, error) {
		lease, _ := core.LeaseFrom(ctx)
		return "sent under " + lease.Key(), nil
	})
	var p Parcel
	p.Order.ID = 17
	fmt.Println(send(context.Background(), p))
	// Output: sent under parcel:17 <nil>
}

func ExampleWithLockErr() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	refund := decorator.WithLockErr(locks, core.Policy{Key: "refund:{.}"}, func(ctx context.Context, order int64) error {
		lease, _ := core.LeaseFrom(ctx)
		fmt.Println("refunding under", lease.Key())
		return nil
	})
	fmt.Println(refund(context.Background(), 17))
	// Output:
	// refunding under refund:17
	// <nil>
}

// A policy from a file is refused with an error rather than a panic.
func ExampleNew() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	shelf := &Shelf{}
	_, err := decorator.New(locks, core.Policy{Name: "deduct", Key: "stock:{Sku}"}, shelf.Deduct)
	fmt.Println(err)
	// Output:
	// lock compile "deduct": invalid lock policy: Key "stock:{Sku}", column 7: {Sku}: decorator_test.Deduct has no field Sku; did you mean SKU?
}

// While one caller refills the cache, the others are served the old value.
func ExampleOnBusy() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	var price func(context.Context, string) (string, error)
	price = decorator.WithLock(locks, core.Policy{Key: "price:{.}"},
		func(_ context.Context, sku string) (string, error) {
			fmt.Println(price(context.Background(), sku)) // another caller, meanwhile
			return "12.00 fresh", nil
		},
		decorator.OnBusy(func(_ context.Context, sku string, _ error) (string, error) {
			return "11.50 cached", nil
		}))
	fmt.Println(price(context.Background(), "A-1"))
	// Output:
	// 11.50 cached <nil>
	// 12.00 fresh <nil>
}

// A job that another replica is running already is skipped.
func ExampleOnBusyErr() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()

	var nightly func(context.Context, string) error
	nightly = decorator.WithLockErr(locks, core.Policy{Key: "job:{.}"},
		func(_ context.Context, name string) error {
			fmt.Println("running", name)
			return nightly(context.Background(), name) // another replica, meanwhile
		},
		decorator.OnBusyErr(func(_ context.Context, name string, _ error) error {
			fmt.Println("skipping", name)
			return nil
		}))
	fmt.Println(nightly(context.Background(), "report"))
	// Output:
	// running report
	// skipping report
	// <nil>
}
