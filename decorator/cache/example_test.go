package cache_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/cache"
)

type Product struct{ SKU string }

// Prices is a service that knows nothing of caches.
type Prices struct{ cents map[string]int }

func (p *Prices) Of(_ context.Context, product Product) (int, error) {
	fmt.Println("loading", product.SKU)
	cents, ok := p.cents[product.SKU]
	if !ok {
		return 0, fmt.Errorf("price of %s: %w", product.SKU, cache.ErrNotFound)
	}
	return cents, nil
}

func ExampleMust() {
	locks, err := core.New(memlock.New(), core.WithNamespace("shop:example"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	store := cache.NewMemory(cache.Limits{Entries: 1000}) // rediscache.New, for several processes

	prices := &Prices{cents: map[string]int{"A-1": 1200}}
	price := cache.Must(locks, core.Policy{Key: "price:{SKU}", Wait: 5 * time.Second}, store, prices.Of,
		cache.Policy{Expiry: 10 * time.Minute, NotFound: time.Minute})
	defer price.Close()

	ctx := context.Background()
	fmt.Println(price.Get(ctx, Product{SKU: "A-1"}))
	fmt.Println(price.Get(ctx, Product{SKU: "A-1"}))

	prices.cents["A-1"] = 1100
	fmt.Println(price.Invalidate(ctx, Product{SKU: "A-1"}))
	fmt.Println(price.Get(ctx, Product{SKU: "A-1"}))

	for range 2 { // that there is none is kept as well
		_, err := price.Get(ctx, Product{SKU: "B-2"})
		fmt.Println(errors.Is(err, cache.ErrNotFound), err)
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

// A loader that was paused does not store what is outdated. The tokens are those of the
// leases under which the two loaded: the second one came when the first had lost its lock.
func ExampleMemory() {
	ctx := context.Background()
	store := cache.NewMemory(cache.Limits{Entries: 1000})
	const paused, next = 33, 34

	if _, err := store.Claim(ctx, "A-1", paused, time.Minute); err != nil {
		fmt.Println(err)
	}
	if _, err := store.Claim(ctx, "A-1", next, time.Minute); err != nil {
		fmt.Println(err)
	}
	fmt.Println(store.Put(ctx, "A-1", next, []byte("11.00"), time.Hour))
	fmt.Println(store.Put(ctx, "A-1", paused, []byte("12.00"), time.Hour))

	entry, err := store.Get(ctx, "A-1")
	fmt.Println(string(entry.Value), err)

	// Nor can a loader whose claim an invalidation has ended claim once more.
	fmt.Println(store.Invalidate(ctx, "A-1"))
	_, err = store.Claim(ctx, "A-1", next, time.Minute)
	fmt.Println(errors.Is(err, cache.ErrSuperseded))
	// Output:
	// true <nil>
	// false <nil>
	// 11.00 <nil>
	// <nil>
	// true
}
