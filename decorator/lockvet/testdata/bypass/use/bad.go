// Package use calls what has a lock, and what has none.
package use

import (
	"context"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockvet/testdata/bypass/stock"
)

var locks *core.Engine

func method(ctx context.Context, shelf *stock.Shelf) error {
	_, err := shelf.Deduct(ctx, "A-1", 1) // want `Deduct has a //lock:with directive, and a direct call of it takes no lock; call it by ShelfWithLock`
	return err
}

func function(ctx context.Context) error {
	return stock.Refill(ctx, "A-1") // want `Refill has a //lock:with directive, and a direct call of it takes no lock; call it by RefillLocked`
}

func generic(ctx context.Context) error {
	return stock.Count[string](ctx, "A-1") // want `call it by CountLocked`
}

// A call through a field of what was generated goes round it.
func through(ctx context.Context, shelf *stock.ShelfWithLock) error {
	_, err := shelf.Shelf.Deduct(ctx, "A-1", 1) // want `Deduct has a //lock:with directive`
	return err
}

func inAGoroutine(ctx context.Context, shelf *stock.Shelf) {
	go func() {
		_, _ = shelf.Deduct(ctx, "A-1", 1) // want `Deduct has a //lock:with directive`
	}()
}

type bank struct{}

func (*bank) Charge(ctx context.Context, customer string) error { return nil }
func (*bank) Name() string                                      { return "bank" }

type teller struct{}

func (*teller) Repay(ctx context.Context, id string) error { return nil }

func behindAnInterfaceOfCallsThatRunOnce(ctx context.Context) error {
	b := new(teller)
	refunds, err := stock.NewRefundsWithLock(locks, nil, b)
	if err != nil {
		return err
	}
	if err := b.Repay(ctx, "R-1"); err != nil { // want `Repay has a //lock:with directive, and a direct call of it takes no lock; call it by RefundsWithLock`
		return err
	}
	return refunds.Repay(ctx, "R-1")
}

func behindAnInterface(ctx context.Context) error {
	b := new(bank)
	payments, err := stock.NewPaymentsWithLock(locks, b)
	if err != nil {
		return err
	}
	if err := b.Charge(ctx, "C-1"); err != nil { // want `Charge has a //lock:with directive, and a direct call of it takes no lock; call it by PaymentsWithLock`
		return err
	}
	return payments.Charge(ctx, "C-1")
}
