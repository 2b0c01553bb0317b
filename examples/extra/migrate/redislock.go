package main

import (
	"context"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
)

// underRedislock is the service before the move: it obtains a lock of bsm/redislock, and
// releases it when it has sold.
func underRedislock(locker *bsm.Client, sell method) method {
	return func(ctx context.Context, s sale) error {
		lock, err := locker.Obtain(ctx, "stock:"+s.SKU, 30*time.Second,
			&bsm.Options{RetryStrategy: bsm.LinearBackoff(5 * time.Millisecond)})
		if err != nil {
			return err
		}
		defer func() { _ = lock.Release(context.WithoutCancel(ctx)) }() // it expires otherwise
		return sell(ctx, s)
	}
}

// openRedislock keeps old and new locks in one Redis, where their keys differ.
func openRedislock(at string) (*replica, error) {
	rdb := redis.NewClient(&redis.Options{Addr: at})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop"))
	if err != nil {
		return nil, err
	}
	locker := bsm.New(rdb)
	return &replica{
		old:   func(sell method) method { return underRedislock(locker, sell) },
		locks: locks,
		close: rdb.Close,
	}, nil
}
