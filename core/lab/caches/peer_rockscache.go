package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/dtm-labs/rockscache"
	"github.com/redis/go-redis/v9"
)

const rockscacheModule = "github.com/dtm-labs/rockscache"

// rockscache, with its default options. A value lives for Delay less than the expiry that
// Fetch is given. Values are strings.
// https://github.com/dtm-labs/rockscache#usage
type rockscacheProcess struct {
	client *redis.Client
	cache  *rockscache.Client
	expire time.Duration
	load   Load
}

func openWeak(s Settings, load Load) (Process, error) {
	return openRockscache(s, load, rockscache.NewDefaultOptions())
}

func openStrong(s Settings, load Load) (Process, error) {
	options := rockscache.NewDefaultOptions()
	options.StrongConsistency = true
	return openRockscache(s, load, options)
}

func openRockscache(s Settings, load Load, options rockscache.Options) (Process, error) {
	options.RandomExpireAdjustment = 0
	if s.LockTTL > 0 {
		options.LockExpire = s.LockTTL
	}
	client := redis.NewClient(&redis.Options{Addr: s.Addr})
	return &rockscacheProcess{client, rockscache.NewClient(client, options), s.Expiry + options.Delay, load}, nil
}

func (p *rockscacheProcess) Get(ctx context.Context, key string) (item Item, err error) {
	text, err := p.cache.Fetch2(ctx, key, p.expire, func() (string, error) {
		loaded, err := p.load(ctx, key)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(loaded)
		return string(text), err
	})
	if err != nil {
		return Item{}, err
	}
	err = json.Unmarshal([]byte(text), &item)
	return item, err
}

func (p *rockscacheProcess) Invalidate(ctx context.Context, key string) error {
	return p.cache.TagAsDeleted2(ctx, key)
}

func (p *rockscacheProcess) Close() { _ = p.client.Close() } // the process ends
