package redisfence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/redislock"
)

// The check and the write are one step, in the Redis that holds the resource.
func ExampleScript() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	deduct := redisfence.NewScript(`return redis.call('DECRBY', KEYS[1], ARGV[1])`)
	err = locks.Do(context.Background(), core.Policy{Key: "stock:book"}, func(ctx context.Context) error {
		token, err := fence.For(ctx, "stock:book")
		if err != nil {
			return err
		}
		left, err := deduct.Run(ctx, rdb, token, []string{"units:{stock:book}"}, 3).Int()
		if errors.Is(err, fence.ErrStale) {
			return fmt.Errorf("another one has the lock by now, nothing was written: %w", err)
		}
		fmt.Println(left)
		return err
	})
	if err != nil {
		fmt.Println(err)
	}
}

// A guard for the check before reading. The write, in another step, has its own.
func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	guard := redisfence.New(rdb)
	err = locks.Do(context.Background(), core.Policy{Name: "stock", Key: "stock:book"}, func(ctx context.Context) error {
		token, err := fence.For(ctx, "stock:book")
		if err != nil {
			return err
		}
		if err := guard.Admit(ctx, token); err != nil {
			return err // of a larger token, or of a Redis that did not answer
		}
		return nil // no earlier holder writes any more: read here
	})
	if err != nil {
		fmt.Println(err)
	}
}
