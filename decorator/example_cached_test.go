package decorator_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
)

type Product struct{ SKU string }

// Prices is a service that knows nothing of caches.
type Prices struct{ cents map[string]int }

func (p *Prices) Of(_ context.Context, product Product) (int, error) {
	fmt.Println("loading", product.SKU)
	cents, ok := p.cents[product.SKU]
	if !ok {
		return 0, fmt.Errorf("price of %s: %w", product.SKU, decorator.ErrNotFound)
	}
	return cents, nil
}

func ExampleCached() {
	locks := newLocks()
	defer func() { _ = locks.Close() }()
	store := cache.NewMemory(cache.Limits{Entries: 1000}) // rediscache.New, for several processes

	prices := &Prices{cents: map[string]int{"A-1": 1200}}
	price := decorator.Cached(locks, core.Policy{Key: "price:{SKU}", Wait: 5 * time.Second}, store, prices.Of,
		decorator.CachePolicy{Expiry: 10 * time.Minute, NotFound: time.Minute})
	defer price.Close()

	ctx := context.Background()
	fmt.Println(price.Get(ctx, Product{SKU: "A-1"}))
	fmt.Println(price.Get(ctx, Product{SKU: "A-1"}))

	prices.cents["A-1"] = 1100
	fmt.Println(price.Invalidate(ctx, Product{SKU: "A-1"}))
	fmt.Println(price.Get(ctx, Product{SKU: "A-1"}))

	for range 2 { // that there is none is kept as well
		_, err := price.Get(ctx, Product{SKU: "B-2"})
		fmt.Println(errors.Is(err, decorator.ErrNotFound), err)
	}
	// Output:
	// loading A-1
	// 1200 <nil>
	// 1200 <nil>
	// <nil>
	// loading A-1
	// 1100 <nil>
	// loading B-2
	// true cache get "price:{SKU}": not found
	// true cache get "price:{SKU}": not found
}
