package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// source is what is loaded from: a version for each key, in the same Redis and with a
// client of its own, so that versions and the count of loads are those of all processes.
type source struct {
	client *redis.Client
	takes  atomic.Int64 // how long a load takes, in ns

	mu    sync.Mutex
	holds map[string]*hold
}

// hold is a load that is stopped after it has read.
type hold struct {
	begun chan struct{} // closed when it has read the version
	end   chan struct{} // closed when it may return that
}

func newSource(addr string) *source {
	return &source{client: redis.NewClient(&redis.Options{Addr: addr}), holds: map[string]*hold{}}
}

// load reads the version and counts. What it returns is as old as its beginning.
func (s *source) load(ctx context.Context, key string) (Item, error) {
	version, err := s.read(ctx, key)
	if err != nil {
		return Item{}, err
	}
	end, timer := s.taken(key), time.NewTimer(time.Duration(s.takes.Load()))
	defer timer.Stop()
	if end == nil {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return Item{}, ctx.Err()
		}
		return newItem(key, version), nil
	}
	select {
	case <-end:
	case <-ctx.Done():
		return Item{}, ctx.Err()
	}
	return newItem(key, version), nil
}

// read returns the version, 0 if it was never set, and counts a load.
func (s *source) read(ctx context.Context, key string) (int64, error) {
	both := s.client.Pipeline()
	both.Incr(ctx, loadsOf(key))
	version := both.Get(ctx, versionOf(key))
	if _, err := both.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	if errors.Is(version.Err(), redis.Nil) {
		return 0, nil
	}
	return version.Int64()
}

// change sets the versions of keys.
func change(ctx context.Context, client *redis.Client, version int64, keys ...string) error {
	_, err := client.Pipelined(ctx, func(all redis.Pipeliner) error {
		for _, key := range keys {
			all.Set(ctx, versionOf(key), version, 0)
		}
		return nil
	})
	return err
}

// countLoads is how often a key was loaded.
func countLoads(ctx context.Context, client *redis.Client, key string) (int64, error) {
	n, err := client.Get(ctx, loadsOf(key)).Int64()
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	return n, err
}

// stop has the next load of a key stop.
func (s *source) stop(key string) *hold {
	h := &hold{begun: make(chan struct{}), end: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds[key] = h
	return h
}

// taken is what a load has to wait for, nil if for nothing. It says that the load is there.
func (s *source) taken(key string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holds[key]
	if h == nil {
		return nil
	}
	delete(s.holds, key)
	close(h.begun)
	return h.end
}

func (s *source) close() { _ = s.client.Close() } // nothing is lost

func loadsOf(key string) string   { return "loads:" + key }
func versionOf(key string) string { return "version:" + key }
