package core_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// A surface tells its clients whether they may send a call again.
func ExampleFailureOf() {
	store := memlock.New()
	locks, err := core.New(store, core.WithNamespace("shop:example"))
	if err != nil {
		panic(err)
	}
	defer func() { _ = locks.Close() }()
	answer := func(err error) string {
		switch failure, by := core.FailureOf(err); {
		case err == nil:
			return "200 OK"
		case failure == core.NoFailure:
			return "422 " + err.Error() // the call's own
		case failure > core.Refused:
			return "500 it may have had an effect: " + by.Error()
		case errors.Is(by, core.ErrBusy):
			return "409 try again"
		default:
			return "503 " + by.Error()
		}
	}
	sell := core.Policy{Key: "stock:book", Name: "stock"}
	fmt.Println(answer(locks.Do(context.Background(), sell, func(ctx context.Context) error {
		other := locks.Do(core.Detach(ctx), sell, func(context.Context) error { return nil })
		fmt.Println(answer(fmt.Errorf("sell twice: %w", other)))
		fmt.Println(answer(errors.New("sold out")))
		store.Expire("shop:example/stock:book") // as after a pause that was longer than the lease
		<-ctx.Done()
		return context.Cause(ctx)
	})))
	// Output:
	// 409 try again
	// 422 sold out
	// 500 it may have had an effect: lock lost while held
}
