package main

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
)

// underRedsync is the service before the move: it locks a mutex of redsync, and unlocks it
// when it has sold.
func underRedsync(mutexes *redsync.Redsync, sell method) method {
	return func(ctx context.Context, s sale) error {
		mutex := mutexes.NewMutex("stock:"+s.SKU, redsync.WithTries(1000), redsync.WithRetryDelay(5*time.Millisecond))
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		defer func() { _, _ = mutex.UnlockContext(context.WithoutCancel(ctx)) }() // it expires otherwise
		return sell(ctx, s)
	}
}

// openRedsync keeps old and new locks in one Redis, where their keys differ. A service whose
// mutexes are in several masters has its new locks there by core/redlock.
func openRedsync(at string) (*replica, error) {
	rdb := redis.NewClient(&redis.Options{Addr: at})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop"))
	if err != nil {
		return nil, err
	}
	mutexes := redsync.New(goredis.NewPool(rdb))
	return &replica{
		old:   func(sell method) method { return underRedsync(mutexes, sell) },
		locks: locks,
		close: rdb.Close,
	}, nil
}
