package sale

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
)

// While -serve goes on, these buyers want these products, the first ones most, so that the
// page of locks has something to show.
const regulars = 24

var goods = []string{"lamp", "pen", "chair", "cup", "map", "kite"}

// crowd lets the regulars buy until ctx ends, and returns when the last has left. Whoever finds a
// product sold out restocks it.
func (s *shop) crowd(ctx context.Context) {
	checkout := decorator.WithLock(s.locks, core.Policy{Name: "checkout", Key: "stock:{SKU}", Wait: time.Second},
		func(ctx context.Context, r deductRequest) (struct{}, error) {
			const delivery = 50
			units, err := s.stock.Units(ctx, r.SKU)
			if err != nil || units < 1 {
				units = delivery
			}
			pause(ctx, 120*time.Millisecond) // the payment
			return struct{}{}, s.stock.SetUnits(ctx, r.SKU, units-1)
		})
	var all sync.WaitGroup
	for range regulars {
		all.Go(func() {
			for ctx.Err() == nil {
				pause(ctx, time.Second)
				sku := goods[min(rand.IntN(len(goods)), rand.IntN(len(goods)))]
				_, _ = checkout(ctx, deductRequest{SKU: sku}) // who waits in vain comes again
			}
		})
	}
	all.Wait()
}

// pause waits for up to d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(rand.N(d)):
	}
}
