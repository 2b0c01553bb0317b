package rediscache_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/decorator/cache/rediscache"
)

// between is a hook that has something happen after the first command of a pipeline.
type between struct{ happens func() }

func (between) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (between) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (b between) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := next(ctx, cmds[:1]); err != nil {
			return err
		}
		b.happens()
		return next(ctx, cmds[1:])
	}
}

// The two commands of a Get are no transaction.
func TestChangeWithinAGetLendsNoLifetime(t *testing.T) {
	srv := startServer(t)
	claim := func(s *rediscache.Store, token int64, ttl time.Duration) {
		if _, err := s.Claim(t.Context(), "k", token, ttl); err != nil {
			t.Fatal(err)
		}
	}
	put := func(s *rediscache.Store, token int64, value string, ttl time.Duration) {
		claim(s, token, time.Minute)
		if stored, err := s.Put(t.Context(), "k", token, []byte(value), ttl); !stored || err != nil {
			t.Fatalf("put: %t, %v", stored, err)
		}
	}
	invalidate := func(s *rediscache.Store) {
		if err := s.Invalidate(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
	}
	type store = *rediscache.Store
	for name, tc := range map[string]struct {
		before, between func(s store)
		value           string        // to be read
		left            time.Duration // at most
	}{
		"nothing": {func(s store) { put(s, 1, "v", time.Hour) }, func(store) {}, "v", time.Hour},
		"a value that ends sooner": {
			func(s store) { put(s, 1, "v", 10*time.Hour) }, func(s store) { put(s, 2, "w", time.Hour) }, "w", time.Hour,
		},
		"a value that ends later": {
			func(s store) { put(s, 1, "v", time.Hour) }, func(s store) { put(s, 2, "w", 10*time.Hour) }, "w", 10 * time.Hour,
		},
		"a first value": {
			func(s store) { claim(s, 1, 10*time.Hour) }, func(s store) { put(s, 1, "w", time.Hour) }, "w", time.Hour,
		},
		"a value after an invalidation": {
			func(s store) { put(s, 1, "v", 10*time.Hour) }, func(s store) { invalidate(s); put(s, 2, "w", time.Minute) }, "w", time.Minute,
		},
		"a claim that outlives the value": {
			func(s store) { put(s, 1, "v", time.Hour) }, func(s store) { claim(s, 2, 10*time.Hour) }, "", 0,
		},
		"an invalidation":        {func(s store) { put(s, 1, "v", time.Hour) }, invalidate, "", 0},
		"a value out of nothing": {func(store) {}, func(s store) { put(s, 1, "v", time.Hour) }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			direct := srv.client(redis.Options{})
			if err := direct.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			reader := srv.client(redis.Options{})
			tc.before(newStore(t, direct))
			reader.AddHook(between{func() { tc.between(newStore(t, direct)) }})
			e, err := newStore(t, reader).Get(t.Context(), "k")
			if err != nil || string(e.Value) != tc.value || e.Left > tc.left {
				t.Errorf("read %q with %v left, %v; want %q with at most %v", e.Value, e.Left, err, tc.value, tc.left)
			}
		})
	}
}
