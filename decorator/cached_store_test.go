package decorator_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/cache"
	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/redisserver"
)

// A user of Redis without the right to publish reads, claims and loads, and stores nothing.
func TestPingSaysThatNothingCanBeKept(t *testing.T) {
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }() // nothing is held
	load := func(context.Context, string) (string, error) { return "", nil }
	for bytes, ok := range map[int64]bool{10: false, 1 << 10: true} {
		f := decorator.Cached(locks, core.Policy{Key: "page:{.}"}, cache.NewMemory(cache.Limits{Bytes: bytes}), load, decorator.CachePolicy{Expiry: time.Minute})
		if err := f.Ping(t.Context()); (err == nil) != ok || !ok && !errors.Is(err, decorator.ErrCache) {
			t.Errorf("Ping with %d bytes: %v", bytes, err)
		}
		f.Close()
		if err := f.Ping(t.Context()); !errors.Is(err, core.ErrClosed) {
			t.Errorf("Ping after Close: %v", err)
		}
	}
}

func TestStoreThatRefusesWhatIsLoadedIsToldOnceAndByPing(t *testing.T) {
	var logged bytes.Buffer
	admin := redis.NewClient(&redis.Options{Addr: redisserver.Start(t).Addr})
	defer func() { _ = admin.Close() }()
	may := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "app", "on", ">secret", "+@all", "~*", "resetchannels"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	may()
	rdb := redis.NewClient(&redis.Options{Addr: admin.Options().Addr, Username: "app", Password: "secret"})
	defer func() { _ = rdb.Close() }()
	store, err := rediscache.New(rdb, "shop:cache:")
	if err != nil {
		t.Fatal(err)
	}
	locks, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.NewTextHandler(&logged, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	var loads atomic.Int64
	f := decorator.Cached(locks, core.Policy{Key: "price:{.}", Wait: time.Minute}, store, func(context.Context, string) (int64, error) {
		return loads.Add(1), nil
	}, decorator.CachePolicy{Expiry: time.Hour})
	defer f.Close()

	for n := range int64(3) {
		if v, err := f.Get(t.Context(), "A-1"); err != nil || v != n+1 {
			t.Errorf("Get returns %d, %v; want %d, loaded for it", v, err, n+1)
		}
	}
	if err := f.Ping(t.Context()); !errors.Is(err, decorator.ErrCache) {
		t.Errorf("Ping: %v; want ErrCache", err)
	}
	if text := logged.String(); strings.Count(text, "cannot store what it loads") != 1 || !strings.Contains(text, "publish") || strings.Contains(text, "A-1") {
		t.Errorf("the log says\n%s; want once that it cannot store and why, without the key", text)
	}

	may("allchannels")
	if err := f.Ping(t.Context()); err != nil {
		t.Errorf("Ping with the right to publish: %v", err)
	}
	for range 2 {
		if v, err := f.Get(t.Context(), "A-1"); err != nil || v != 4 {
			t.Errorf("Get returns %d, %v; want 4, stored", v, err)
		}
	}
}
