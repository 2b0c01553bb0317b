package rediscache

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/internal/redispush"
)

// Store is a [cache.Store] and a [cache.Announcer] in Redis. It is safe for concurrent use.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	channel string
	check   time.Duration // how long a subscription may be silent before it is pinged, and the answer may take
	reads   readings
}

var _ cache.Remote = (*Store)(nil)

// New returns a store of the entries whose keys in Redis begin with prefix. Stores with
// the same prefix share them. Nothing else may write there, nor to another prefix that
// this one begins with. New does no I/O, and the client stays the caller's.
//
// The client is a [*redis.Client], of a server or of Sentinels' master, or a
// [*redis.ClusterClient] that does not read from replicas. A [*redis.Ring] is refused: it
// takes keys to another server while theirs is down, where they miss invalidations.
func New(client redis.UniversalClient, prefix string) (*Store, error) {
	if err := redispush.Usable(client); err != nil {
		return nil, fmt.Errorf("rediscache: %w", err)
	}
	if prefix == "" {
		return nil, errors.New(`rediscache: the prefix is empty; use one that only this cache has, such as "shop:cache:"`)
	}
	return &Store{
		client: client, prefix: prefix, channel: prefix + "changes", check: 3 * time.Second,
		reads: readings{byKey: make(map[string]*reading)},
	}, nil
}

// Get reads the entry, in one round trip. Calls of one process for the same key share one
// if they have begun before it.
func (s *Store) Get(ctx context.Context, key string) (cache.Entry, error) {
	return s.reads.get(ctx, key, s.read)
}

// read reads the entry.
func (s *Store) read(ctx context.Context, key string) (cache.Entry, error) {
	began := time.Now()
	both := s.client.Pipeline() // without MULTI, which a server that is out of memory refuses
	left := both.PTTL(ctx, s.prefix+key)
	raw := both.Get(ctx, s.prefix+key)
	_, err := both.Exec(ctx)
	switch {
	case errors.Is(err, redis.Nil):
		return cache.Entry{}, nil
	case err != nil:
		return cache.Entry{}, failure("get", err)
	}
	value, err := raw.Bytes()
	if err != nil {
		return cache.Entry{}, failure("get", err)
	}
	e, err := parse(value, left.Val(), time.Since(began))
	if err != nil {
		return cache.Entry{}, failure("get", err)
	}
	return e, nil
}

// Claim claims the key. The error is [cache.ErrSuperseded], one of [cache.Validate], or
// around what has kept Redis from answering.
func (s *Store) Claim(ctx context.Context, key string, token int64, ttl time.Duration) (cache.Entry, error) {
	if err := cache.Validate(token, ttl); err != nil {
		return cache.Entry{}, err
	}
	began := time.Now()
	ms := (ttl + 2*time.Millisecond - 1).Milliseconds() // at least ttl, though the server's time is cut to whole ones
	raw, err := claimScript.Run(ctx, s.client, []string{s.prefix + key}, digits(token), ms).Result()
	if err != nil {
		return cache.Entry{}, failure("claim", err)
	}
	e, err := parseClaim(raw, time.Since(began))
	if err != nil && !errors.Is(err, cache.ErrSuperseded) {
		err = failure("claim", err)
	}
	return e, err
}

// Put stores the value and announces it. A fraction of a millisecond of ttl is left out.
// The error is one of [cache.Validate], or around what has kept Redis from answering.
func (s *Store) Put(ctx context.Context, key string, token int64, value []byte, ttl time.Duration) (bool, error) {
	if err := cache.Validate(token, ttl); err != nil {
		return false, err
	}
	stored, err := putScript.Run(ctx, s.client, []string{s.prefix + key}, digits(token), value, ttl.Milliseconds(), s.channel, key).Bool()
	if err != nil {
		return false, failure("put", err)
	}
	return stored, nil
}

// Invalidate removes the value, ends the claim, and announces it. The error is around what
// has kept Redis from answering.
func (s *Store) Invalidate(ctx context.Context, key string) error {
	if err := invalidateScript.Run(ctx, s.client, []string{s.prefix + key}, s.channel, key).Err(); err != nil {
		return failure("invalidate", err)
	}
	return nil
}
