// Package stock has an interface with locks around its methods, and uses what is generated.
package stock

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core"
)

//go:generate go tool lockgen

// Stock is where goods lie.
type Stock interface {
	// Deduct takes n units.
	//
	//lock:with "stock:{sku}:{req.WarehouseID}" wait=2s ttl=10s
	Deduct(ctx context.Context, sku string, req *Request) (left int, err error)

	//lock:with "stock:{sku}" mode=shared wait=forever
	Count(context context.Context, sku string) (int, error)

	// Move takes two places at once.
	//
	//lock:with "place:{from}"
	//lock:with "place:{to}" wait=1500ms name=move
	Move(_ context.Context, from, to Place, units ...int) error

	//lock:with "audit" mode=semaphore limit=3 wait=1m30s maxhold=1h
	Audit(ctx context.Context) error

	//lock:with "order:{req.Order.ID}/{req.order.paid}" norenew reentrant tokens=clock fairness=strict minhold=1ms release=sent
	Confirm(ctx context.Context, req Request) (string, time.Duration, error)

	// Name has no lock.
	Name() string
}

// Place is where in a warehouse.
type Place int16

// Request is what is asked for.
type Request struct {
	WarehouseID uint32
	Order       *Order `lock:"order"`
	Note        [4096]byte
}

// Order is what a customer wants.
type Order struct {
	ID   **int64
	Paid bool `lock:"paid"`
}

// Open puts locks around a stock.
func Open(locks *core.Engine, s Stock) (*StockWithLock, error) {
	return NewStockWithLock(locks, s)
}
