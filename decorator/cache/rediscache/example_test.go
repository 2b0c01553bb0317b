package rediscache_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
)

// A value is read from the copies of the process, from Redis, or from its source: there by
// one process, while the others wait for it.
func Example() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	remote, err := rediscache.New(rdb, "shop:cache:")
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := cache.NewTiered(cache.Limits{Bytes: 64 << 20}, remote)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()

	price := func(ctx context.Context, sku string) (string, error) {
		if e, err := store.Get(ctx, sku); err == nil && e.Value != nil {
			return string(e.Value), nil
		}
		var value string
		err := locks.Do(ctx, core.Policy{Key: "price:" + core.Escape(sku), Wait: time.Second}, func(ctx context.Context) error {
			lease, _ := core.LeaseFrom(ctx)
			e, err := store.Claim(ctx, sku, lease.Token(), time.Minute)
			if err != nil || e.Value != nil {
				value = string(e.Value) // another process has loaded it meanwhile
				return err
			}
			value = "12.90" // from the database
			_, err = store.Put(ctx, sku, lease.Token(), []byte(value), time.Hour)
			return err
		})
		return value, err
	}
	fmt.Println(price(context.Background(), "A-1"))
}

// A function with a cache in Redis before it, which does the same in one line.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	store, err := rediscache.New(rdb, "shop:cache:")
	if err != nil {
		fmt.Println(err)
		return
	}
	price := cache.Must(locks, core.Policy{Name: "price", Key: "price:{.}", Wait: time.Second}, store,
		func(context.Context, string) (string, error) { return "12.90", nil }, // from the database
		cache.Policy{Expiry: 10 * time.Minute, Fresh: time.Minute})
	defer price.Close()
	fmt.Println(price.Get(context.Background(), "A-1"))
}
