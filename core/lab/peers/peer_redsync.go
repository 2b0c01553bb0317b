package main

import (
	"context"
	"math"
	"time"

	"github.com/go-redsync/redsync/v4"
	pool "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsync, as in its README: an expiry of 8 s that nobody renews. Of its options it has
// WithTries, since by default it gives up after 32 tries, and where callers wait for
// another one's work WithRetryDelay, since by default it waits 50 to 250 ms at random.
// https://pkg.go.dev/github.com/go-redsync/redsync/v4#Option
type redsyncProcess struct {
	clients []*redis.Client
	locks   *redsync.Redsync
	options []redsync.Option
}

func openRedsync(addr string, s Scenario) (Process, error) {
	var pools []pool.Pool
	all := clients(addr)
	for _, c := range all {
		pools = append(pools, goredis.NewPool(c))
	}
	p := &redsyncProcess{all, redsync.New(pools...), []redsync.Option{redsync.WithTries(math.MaxInt)}}
	if delay := redsyncDelay(s); delay > 0 {
		p.options = append(p.options, redsync.WithRetryDelay(delay))
	}
	return p, nil
}

// redsyncDelay is what serves a scenario best; 0 is the default.
func redsyncDelay(s Scenario) time.Duration {
	if s.Body >= time.Millisecond {
		return eagerly
	}
	return 0
}

// eagerly is how often those ask who wait for another one's work. It was chosen from 1, 2,
// 5, 10 and 16 ms, of which the longer hand over later and the shorter slow down who works.
const eagerly = 5 * time.Millisecond

func (p *redsyncProcess) Lock(ctx context.Context, key string) (func() error, error) {
	mutex := p.locks.NewMutex(key, p.options...)
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func() error {
		_, err := mutex.UnlockContext(context.Background())
		return err
	}, nil
}

func (p *redsyncProcess) Close() { _ = closeAll(p.clients) } // the process ends
