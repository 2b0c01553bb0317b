package redislock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestKeyThatIsOverwrittenOrDeletedIsNotHeld(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservers.Redis(t).Addr()})
	e := newEngine(t, client)
	for name, spoil := range map[string]func(key string) error{
		"overwritten": func(key string) error { return client.Set(t.Context(), key, "x", 0).Err() },
		"deleted":     func(key string) error { return client.Del(t.Context(), key).Err() },
	} {
		for op, do := range map[string]func(*core.Lease) error{
			"check":   func(l *core.Lease) error { return l.Check(t.Context()) },
			"extend":  func(l *core.Lease) error { return l.Extend(t.Context(), lasting) },
			"release": func(l *core.Lease) error { return l.Release(t.Context()) },
		} {
			lease := e.take(t, name+op, lasting)
			keys, err := client.Keys(t.Context(), "*"+name+op+"*").Result()
			if err != nil || len(keys) != 1 {
				t.Fatalf("keys %q, %v", keys, err)
			}
			if err := spoil(keys[0]); err != nil {
				t.Fatal(err)
			}
			if err := do(lease); !errors.Is(err, core.ErrLost) {
				t.Errorf("%s of a lease whose key was %s: %v; want ErrLost", op, name, err)
			}
			_ = lease.Release(t.Context()) // it was lost
		}
	}
}

func TestDamagedHashIsTheErrorOfItsKeyAlone(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: testservers.Redis(t).Addr()})
	e := newEngine(t, client)
	e.take(t, "sound", lasting)
	damaged := map[string][]any{
		"token":   {"t", "abc"},
		"count":   {"t", "1", "c", "many"},
		"holders": {"t", "1", "s", "nonsense"},
	}
	for key, fields := range damaged {
		if err := client.HSet(t.Context(), protocol.Key("test/"+key), fields...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for key := range damaged {
		_, err := e.Inspect(t.Context(), key)
		var refused *driver.PermanentError
		if !errors.As(err, &refused) || !strings.Contains(refused.Error(), "damaged") {
			t.Errorf("inspect %s: %v", key, err)
		}
		if _, err := e.Acquire(t.Context(), core.Policy{Key: key, Wait: 10 * time.Second}); !errors.As(err, &refused) {
			t.Errorf("acquire %s: %v", key, err)
		}
	}
	if st, err := e.Inspect(t.Context(), "sound"); err != nil || !st.Held {
		t.Errorf("%+v, %v", st, err)
	}
}
