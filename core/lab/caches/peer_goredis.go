package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/go-redis/cache/v9"
	"github.com/redis/go-redis/v9"
)

const goRedisCacheModule = "github.com/go-redis/cache/v9"

// go-redis/cache, by Once, as in its advanced example.
// https://github.com/go-redis/cache#quickstart
type goRedisCacheProcess struct {
	client *redis.Client
	cache  *cache.Cache
	ttl    time.Duration
	load   Load
}

func openGoRedisCache(s Settings, load Load) (Process, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	return &goRedisCacheProcess{client, cache.New(&cache.Options{Redis: client}), s.Expiry, load}, nil
}

// openGoRedisCacheLocal has room for ten times as many copies as the example, since all
// keys of a scenario are to fit.
func openGoRedisCacheLocal(s Settings, load Load) (Process, error) {
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	local := cache.NewTinyLFU(10_000, min(time.Minute, s.Expiry))
	return &goRedisCacheProcess{client, cache.New(&cache.Options{Redis: client, LocalCache: local}), s.Expiry, load}, nil
}

func (p *goRedisCacheProcess) Get(ctx context.Context, key string) (item Item, err error) {
	err = p.cache.Once(&cache.Item{
		Ctx: ctx, Key: key, Value: &item, TTL: p.ttl,
		Do: func(*cache.Item) (any, error) { return p.load(ctx, key) },
	})
	return item, err
}

func (p *goRedisCacheProcess) Invalidate(ctx context.Context, key string) error {
	return p.cache.Delete(ctx, key)
}

func (p *goRedisCacheProcess) Close() { _ = p.client.Close() } // the process ends

// bareProcess is no cache: GET, and SET if there is nothing.
type bareProcess struct {
	client *redis.Client
	ttl    time.Duration
	load   Load
}

func openBare(s Settings, load Load) (Process, error) {
	return &bareProcess{redis.NewClient(&redis.Options{Addr: s.Addr}), s.Expiry, load}, nil
}

func (p *bareProcess) Get(ctx context.Context, key string) (item Item, err error) {
	text, err := p.client.Get(ctx, key).Bytes()
	switch {
	case err == nil:
		err = json.Unmarshal(text, &item)
		return item, err
	case !errors.Is(err, redis.Nil):
		return item, err
	}
	if item, err = p.load(ctx, key); err != nil {
		return item, err
	}
	if text, err = json.Marshal(item); err != nil {
		return item, err
	}
	return item, p.client.Set(ctx, key, text, p.ttl).Err()
}

func (p *bareProcess) Invalidate(ctx context.Context, key string) error {
	return p.client.Del(ctx, key).Err()
}

func (p *bareProcess) Close() { _ = p.client.Close() } // the process ends
