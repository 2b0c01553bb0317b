package main

import (
	"context"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// redislock: it has no default for how to wait. This is its example of a wait bounded
// by a context, with a fresh strategy for each call since strategies keep state. It waits
// for the shortest interval that its documentation recommends, 16 ms, and where callers
// wait for another one's work for less, which serves them better.
// https://pkg.go.dev/github.com/bsm/redislock#example-Client.Obtain-CustomDeadline
// https://pkg.go.dev/github.com/bsm/redislock#ExponentialBackoff
type redislockProcess struct {
	client *redis.Client
	locks  *redislock.Client
	retry  time.Duration
}

const redislockTTL = 30 * time.Second // lockaround's; the examples have no two alike

func openRedislock(addr string, s Scenario) (Process, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	p := &redislockProcess{client, redislock.New(client), 16 * time.Millisecond}
	if s.Body >= time.Millisecond {
		p.retry = eagerly
	}
	return p, nil
}

func (p *redislockProcess) Lock(ctx context.Context, key string) (func() error, error) {
	lock, err := p.locks.Obtain(ctx, key, redislockTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(p.retry)})
	if err != nil {
		return nil, err
	}
	return func() error { return lock.Release(context.Background()) }, nil
}

func (p *redislockProcess) Close() { _ = p.client.Close() } // the process ends
