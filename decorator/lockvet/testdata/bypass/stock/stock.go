// Package stock has functions and methods with directives.
package stock

import (
	"context"

	"github.com/lockaround/lockaround/core"
)

// Shelf keeps articles.
type Shelf struct{ n int }

// Deduct takes articles.
//
//lock:with "stock:{sku}" wait=2s
func (s *Shelf) Deduct(ctx context.Context, sku string, n int) (int, error) { // want Deduct:"guarded by ShelfWithLock"
	s.n -= n
	return s.n, s.log(ctx)
}

// Refund puts articles back, and takes another one.
//
//lock:with "stock:{sku}" reentrant
func (s *Shelf) Refund(ctx context.Context, sku string) error { // want Refund:"guarded by ShelfWithLock"
	_, err := s.Deduct(ctx, sku, -1) // it holds the lock
	return err
}

// Sell is not guarded.
func (s *Shelf) Sell(ctx context.Context, sku string) error {
	_, err := s.Deduct(ctx, sku, 1) // want `Deduct has a //lock:with directive, and a direct call of it takes no lock; call it by ShelfWithLock`
	return err
}

func (s *Shelf) log(context.Context) error { return nil }

// Refill fills a shelf.
//
//lock:with "refill:{sku}"
func Refill(ctx context.Context, sku string) error { return nil } // want Refill:"guarded by RefillLocked"

// Sort sorts articles.
//
//lock:with "stock:{skus[]}" when=Sorts
func Sort(ctx context.Context, skus []string) error { return nil } // want Sort:"guarded by SortLocked"

// Sorts says whether Sort needs the lock.
func Sorts(skus []string) bool { return len(skus) > 1 }

// Count counts.
//
//lock:with "count:{of}"
func Count[T ~string](ctx context.Context, of T) error { return nil } // want Count:"guarded by CountLocked"

// Payments is what somebody pays with.
type Payments interface {
	//lock:with "account:{customer}" wait=5s
	Charge(ctx context.Context, customer string) error // want Charge:"guarded by PaymentsWithLock"
	Name() string
}

// Plain has a comment that is no directive: see //lock:with in package lockgen.
func Plain(ctx context.Context, sku string) error { return nil }

// ShelfWithLock is as lockgen writes it.
type ShelfWithLock struct{ *Shelf }

// Deduct has the lock.
func (s *ShelfWithLock) Deduct(ctx context.Context, sku string, n int) (int, error) { return 0, nil }

// PaymentsWithLock is as lockgen writes it.
type PaymentsWithLock struct{ next Payments }

// NewPaymentsWithLock puts locks around next.
func NewPaymentsWithLock(locks *core.Engine, next Payments) (*PaymentsWithLock, error) {
	return &PaymentsWithLock{next}, nil
}

// Charge has the lock.
func (p *PaymentsWithLock) Charge(ctx context.Context, customer string) error {
	return p.next.Charge(ctx, customer) // by the interface
}

// Name is that of next.
func (p *PaymentsWithLock) Name() string { return p.next.Name() }

// RefillLocked is as lockgen writes it.
func RefillLocked(locks *core.Engine) (func(context.Context, string) error, error) {
	return Refill, nil
}

// SortLocked is as lockgen writes it, but for the lock.
func SortLocked(locks *core.Engine) (func(context.Context, []string) error, error) {
	return Sort, nil
}

// Refunds is what somebody is paid back with.
type Refunds interface {
	//lock:with "refund:{id}" once=refuse
	Repay(ctx context.Context, id string) error // want Repay:"guarded by RefundsWithLock"
}

// RefundsWithLock is as lockgen writes it.
type RefundsWithLock struct{ next Refunds }

// NewRefundsWithLock puts locks around next.
func NewRefundsWithLock(locks *core.Engine, records any, next Refunds) (*RefundsWithLock, error) {
	return &RefundsWithLock{next}, nil
}

// Repay has the lock.
func (r *RefundsWithLock) Repay(ctx context.Context, id string) error {
	return r.next.Repay(ctx, id) // by the interface
}
