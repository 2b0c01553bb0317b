package main

import (
	"context"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
)

// Item is what is cached. As JSON it has 100 bytes.
type Item struct {
	ID      string `json:"id"`
	Version int64  `json:"version"` // of the source when it was loaded
	Text    string `json:"text"`
}

// itemSize is how many bytes an Item has as JSON.
const itemSize = 100

// newItem returns the item of a key, padded to its size.
func newItem(key string, version int64) Item {
	const frame = len(`{"id":"","version":0,"text":""}`)
	return Item{ID: key, Version: version, Text: strings.Repeat("x", max(itemSize-frame-len(key), 0))}
}

// Load asks the source for a key.
type Load func(ctx context.Context, key string) (Item, error)

// Settings are what a user knows of his cache.
type Settings struct {
	Addr    string
	Expiry  time.Duration // of values, in whole seconds
	LockTTL time.Duration // of whatever keeps others from loading; 0 is each peer's default
}

// Open is how one process gets what it has of a peer.
type Open = func(Settings, Load) (Process, error)

// Process is what one process has of a peer: its client and what is built on it. It is
// for many goroutines.
type Process interface {
	// Get returns the value of the cache, or what the source has.
	Get(ctx context.Context, key string) (Item, error)
	// Invalidate is called after the source has changed.
	Invalidate(ctx context.Context, key string) error
	Close()
}

var peers = []Peer{
	{
		Name: contest.Subject, Module: "github.com/lockaround/lockaround", Open: openLockaround,
		Note: "`cache.Must` over `rediscache`",
	},
	{
		Name: contest.Subject + ", tiered", Module: "github.com/lockaround/lockaround", Copies: true, Open: openTiered,
		Note: "the same with `cache.Tiered`: copies in the process, dropped by a push",
	},
	{
		Name: "rockscache", Module: rockscacheModule, Open: openWeak,
		Note: "looks every 100 ms whether another process has loaded; locks and expiries are in whole seconds by the processes' clocks, and a lock is not renewed; `RandomExpireAdjustment` is 0, so that values live as long as everybody's",
	},
	{
		Name: "rockscache, strong", Module: rockscacheModule, Open: openStrong,
		Note: "the same with `StrongConsistency`",
	},
	{
		Name: "go-redis/cache", Module: goRedisCacheModule, Open: openGoRedisCache,
		Note: "`Once`: one load at a time in a process, and nothing between processes; values are in MessagePack, compressed, as is its default",
	},
	{
		Name: "go-redis/cache, local", Module: goRedisCacheModule, Copies: true, Open: openGoRedisCacheLocal,
		Note: "the same with `NewTinyLFU`, for a minute as in its documentation, or for the expiry if that is shorter; copies are not dropped when another process changes the value",
	},
	{
		Name: "rueidisaside", Module: "github.com/redis/rueidis/rueidisaside", Copies: true, Open: openRueidisaside,
		Note: "typed, with JSON; copies in the process by client-side caching",
	},
	{
		Name: "(GET)", Module: "github.com/redis/go-redis/v9", Extra: true, Open: openBare,
		Note: "is go-redis' GET and JSON alone",
	},
}
