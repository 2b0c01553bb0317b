package redislock_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// plainly is for keys that other libraries use.
var plainly = redislock.WithKeys(func(key string) string { return "lock:" + key })

// No request makes anything else of a plain key than a string, which other libraries can read.
func TestConformanceOfPlainKeys(t *testing.T) {
	t.Parallel()
	start := func(t testing.TB, args ...string) *testservers.Server {
		server := testservers.Redis(t, args...)
		rdb := newClient(t, redis.Options{Addr: server.Addr()})
		t.Cleanup(func() {
			for names := rdb.ScanType(context.Background(), 0, "lock:*", 0, "hash").Iterator(); names.Next(context.Background()); {
				t.Errorf("%s has become a hash", names.Val())
			}
		})
		return server
	}
	drivertest.Run(t, func(t *testing.T) *drivertest.Harness { return harness(t, start, redis.Options{}, plainly) })
}

// plainEngine is an engine whose locks are in the keys shop/… of a server.
func plainEngine(t *testing.T) (*core.Engine, *redis.Client) {
	t.Helper()
	rdb := newClient(t, redis.Options{Addr: testservers.Redis(t).Addr()})
	locks, err := core.New(redislock.New(rdb, redislock.WithKeys(func(key string) string { return key })), core.WithNamespace("shop"),
		core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return locks, rdb
}

func TestPlainKeyExcludesOtherLibrariesAndIsExcludedByThem(t *testing.T) {
	t.Parallel()
	locks, rdb := plainEngine(t)
	const name = "shop/order:1"
	theirs := func() bool {
		return rdb.SetArgs(t.Context(), name, "theirs", redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err() == nil
	}
	ours, err := locks.Acquire(t.Context(), core.Policy{Key: "order:1"})
	if err != nil {
		t.Fatal(err)
	}
	if theirs() {
		t.Error("SET with NX took a key that is locked")
	}
	if kind, left := rdb.Type(t.Context(), name).Val(), rdb.PTTL(t.Context(), name).Val(); kind != "string" || left <= 0 {
		t.Errorf("the key is a %s and lasts for %v", kind, left)
	}
	if err := ours.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !theirs() {
		t.Fatal("SET with NX did not take a key that was released")
	}
	if _, err := locks.Acquire(t.Context(), core.Policy{Key: "order:1"}); !errors.Is(err, core.ErrBusy) {
		t.Errorf("a key that another library has: %v", err)
	}
	waited := make(chan error, 1)
	go func() {
		lease, err := locks.Acquire(t.Context(), core.Policy{Key: "order:1", Wait: time.Minute})
		if err == nil {
			err = lease.Release(t.Context())
		}
		waited <- err
	}()
	select {
	case err := <-waited:
		t.Fatalf("a wait for a key that another library has ended: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if value := rdb.Get(t.Context(), name).Val(); value != "theirs" {
		t.Errorf("the key that another library has became %q", value)
	}
	if err := rdb.Del(t.Context(), name).Err(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil {
		t.Errorf("a wait for a key that another library has given back: %v", err)
	}
	if names := rdb.Keys(t.Context(), "*").Val(); len(names) != 1 || names[0][:4] != "la2:" {
		t.Errorf("what is left: %q; want the stream of the tokens", names)
	}
}

func TestPlainKeysRefuseWhatTheyCannotKeep(t *testing.T) {
	t.Parallel()
	locks, _ := plainEngine(t)
	for what, p := range map[string]core.Policy{
		"readers":   {Key: "k", Mode: core.Shared},
		"MinHold":   {Key: "k", MinHold: time.Second},
		"lingering": {Key: "k", Linger: time.Second},
		"order":     {Key: "k", Fairness: core.Strict},
	} {
		if _, err := locks.Acquire(t.Context(), p); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("%s: %v, want %v", what, err, core.ErrPolicy)
		}
	}
}

func TestPlainKeyWithoutANameIsRefusedForGood(t *testing.T) {
	for what, name := range map[string]func(string) string{
		"no name":                  func(string) string { return "" },
		"a name of this package's": func(key string) string { return "la2:" + key },
		"a panic":                  func(string) string { panic("no") },
	} {
		synctest.Test(t, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			defer func() { _ = rdb.Close() }()
			s, err := redislock.New(rdb, redislock.WithKeys(name)).Open(driver.Config{Sink: noSink{}, StoreTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
			var refused *driver.PermanentError
			if _, err := s.Acquire(t.Context(), driver.Request{ID: driver.ID{Key: "k"}, TTL: time.Minute}); !errors.As(err, &refused) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// noSink is one that hears nothing.
type noSink struct{}

func (noSink) Waiting(driver.ID)         {}
func (noSink) Contended(driver.ID, bool) {}
func (noSink) Lost(driver.ID, error)     {}
