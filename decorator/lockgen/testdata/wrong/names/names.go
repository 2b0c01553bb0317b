package names

import "context"

type Stock interface {
	//lock:with "stock"
	Count(ctx context.Context) error
}

type StockWithLock struct{}

type shelf struct{}

//lock:with "shelf"
func (shelf) Count(ctx context.Context) error { return nil }

func newShelfWithLock() {}

//lock:with "refill"
func Refill(ctx context.Context) error { return nil }

var RefillLocked = Refill
