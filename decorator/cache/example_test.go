package cache_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/decorator/cache"
)

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
