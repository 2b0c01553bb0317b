package main

import (
	"context"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsync, as in its README, without options: an expiry of 8 s that nobody renews, 32
// tries at random intervals of 50 to 250 ms, and then it gives up.
// https://github.com/go-redsync/redsync#usage
type redsyncProcess struct {
	client *redis.Client
	locks  *redsync.Redsync
}

func openRedsync(addr string) (Process, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return &redsyncProcess{client, redsync.New(goredis.NewPool(client))}, nil
}

func (p *redsyncProcess) Lock(ctx context.Context, key string) (func() error, error) {
	mutex := p.locks.NewMutex(key)
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		_, err := mutex.UnlockContext(context.Background())
		return err
	}, nil
}

func (p *redsyncProcess) Close() { _ = p.client.Close() } // the process ends
