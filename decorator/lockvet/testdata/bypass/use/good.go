package use

import (
	"context"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/lockvet/testdata/bypass/stock"
)

func generated(ctx context.Context, shelf *stock.ShelfWithLock) error {
	_, err := shelf.Deduct(ctx, "A-1", 1)
	return err
}

func byInterface(ctx context.Context, p stock.Payments) error { return p.Charge(ctx, "C-1") }

func returned(ctx context.Context) error {
	refill, err := stock.RefillLocked(locks)
	if err != nil {
		return err
	}
	return refill(ctx, "A-1")
}

func conditional(ctx context.Context, skus []string) error {
	if !stock.Sorts(skus) {
		return nil
	}
	sort, err := stock.SortLocked(locks)
	if err != nil {
		return err
	}
	return sort(ctx, skus)
}

func asAValue() func(context.Context, string) error { return stock.Refill }

func withoutDirective(ctx context.Context, b *bank) error {
	_ = b.Name()
	return stock.Plain(ctx, "A-1")
}

func underAnotherLock(ctx context.Context, shelf *stock.Shelf) error {
	return locks.Do(ctx, core.Policy{Key: "stock:A-1"}, func(ctx context.Context) error {
		_, err := shelf.Deduct(ctx, "A-1", 1)
		return err
	})
}

func asserted(ctx context.Context, shelf *stock.Shelf) error {
	if err := core.AssertHeld(ctx, "stock:A-1"); err != nil {
		return err
	}
	_, err := shelf.Deduct(ctx, "A-1", 1)
	return err
}

// Deduct has the name of a method with a directive, and is another one.
func (*bank) Deduct(ctx context.Context, sku string, n int) (int, error) { return 0, nil }

func otherOfTheName(ctx context.Context, b *bank) error {
	_, err := b.Deduct(ctx, "A-1", 1)
	return err
}
