package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidisaside"
)

// rueidisaside, by its typed client with JSON. A Get is bounded by the expiry, also while
// it waits. What keeps others from loading is its client's marker, of 10 s by default, which it renews.
// https://github.com/redis/rueidis/tree/main/rueidisaside
type rueidisasideProcess struct {
	client rueidisaside.CacheAsideClient
	items  rueidisaside.TypedCacheAsideClient[Item]
	ttl    time.Duration
	load   Load
}

func openRueidisaside(s Settings, load Load) (Process, error) {
	client, err := rueidisaside.NewClient(rueidisaside.ClientOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{s.Addr}},
		ClientTTL:    s.LockTTL,
	})
	if err != nil {
		return nil, err
	}
	items := rueidisaside.NewTypedCacheAsideClient(client,
		func(item *Item) (string, error) {
			text, err := json.Marshal(item)
			return string(text), err
		},
		func(text string) (*Item, error) {
			item := new(Item)
			err := json.Unmarshal([]byte(text), item)
			return item, err
		})
	return &rueidisasideProcess{client, items, s.Expiry, load}, nil
}

func (p *rueidisasideProcess) Get(ctx context.Context, key string) (Item, error) {
	item, err := p.items.Get(ctx, p.ttl, key, func(ctx context.Context, key string) (*Item, error) {
		item, err := p.load(ctx, key)
		return &item, err
	})
	if err != nil {
		return Item{}, err
	}
	return *item, nil
}

func (p *rueidisasideProcess) Invalidate(ctx context.Context, key string) error {
	return p.items.Del(ctx, key)
}

func (p *rueidisasideProcess) Close() { p.client.Close() }
