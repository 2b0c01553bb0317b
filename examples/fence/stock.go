package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/fence/redisfence"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/redislock"
)

// place is where a run keeps its lock and its stock.
type place struct {
	name  string
	locks *core.Engine
	stock stock
	close func() error
}

// stock is what the lock protects. With a guard, read closes it to earlier holders, and
// both may refuse with an error around fence.ErrStale.
type stock interface {
	units(context.Context) (int, error)
	read(context.Context, fence.Token) (int, error)
	write(ctx context.Context, t fence.Token, units int) error
}

// quiet: the demonstration says itself what is logged otherwise.
var quiet = core.WithLogger(slog.New(slog.DiscardHandler))

// open fills a stock in memory, or in the Redis at addr.
func open(ctx context.Context, addr string, guarded bool) (*place, error) {
	if addr == "" {
		locks, err := core.New(memlock.New(), core.WithNamespace("fence-example"), quiet)
		if err != nil {
			return nil, err
		}
		return &place{"in this process", locks, &memoryStock{guarded: guarded, left: units}, locks.Close}, nil
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	s := &redisStock{rdb: rdb, guarded: guarded, prefix: "fence-example:" + rand.Text() + ":"}
	s.get = redisfence.NewScript(`return redis.call('GET', KEYS[1])`, redisfence.WithKey(s.fenceKey))
	s.set = redisfence.NewScript(`return redis.call('SET', KEYS[1], ARGV[1])`, redisfence.WithKey(s.fenceKey))
	locks, err := core.New(redislock.New(rdb), core.WithNamespace(s.prefix), quiet)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	p := &place{"in Redis", locks, s, func() error {
		return errors.Join(locks.Close(), rdb.Del(context.WithoutCancel(ctx), s.key(), s.fenceKey(key)).Err(), rdb.Close())
	}}
	if err := rdb.Set(ctx, s.key(), units, 0).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("fill the stock in the Redis at %s: %w", addr, err), locks.Close(), rdb.Close())
	}
	return p, nil
}

// memoryStock keeps the guard beside what it guards.
type memoryStock struct {
	guard   fence.Memory
	guarded bool
	mu      sync.Mutex
	left    int
}

func (s *memoryStock) units(context.Context) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left, nil
}

func (s *memoryStock) read(ctx context.Context, t fence.Token) (int, error) {
	if s.guarded {
		if err := s.guard.Admit(ctx, t); err != nil {
			return 0, err
		}
	}
	return s.units(ctx)
}

func (s *memoryStock) set(units int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = units
	return nil
}

func (s *memoryStock) write(ctx context.Context, t fence.Token, units int) error {
	if !s.guarded {
		return s.set(units)
	}
	return s.guard.Do(ctx, t, func() error { return s.set(units) })
}

// redisStock has the guard in the scripts that read and write.
type redisStock struct {
	rdb      *redis.Client
	guarded  bool
	prefix   string
	get, set *redisfence.Script
}

// key and fenceKey have the lock's key as their hash tag, so that they would be in one
// slot of a Cluster.
func (s *redisStock) key() string { return s.prefix + "units:{" + key + "}" }

func (s *redisStock) fenceKey(lockKey string) string { return s.prefix + redisfence.Key(lockKey) }

func (s *redisStock) units(ctx context.Context) (int, error) {
	return s.rdb.Get(ctx, s.key()).Int()
}

func (s *redisStock) read(ctx context.Context, t fence.Token) (int, error) {
	if !s.guarded {
		return s.units(ctx)
	}
	return s.get.Run(ctx, s.rdb, t, []string{s.key()}).Int()
}

func (s *redisStock) write(ctx context.Context, t fence.Token, units int) error {
	if !s.guarded {
		return s.rdb.Set(ctx, s.key(), units, 0).Err()
	}
	return s.set.Run(ctx, s.rdb, t, []string{s.key()}, units).Err()
}
