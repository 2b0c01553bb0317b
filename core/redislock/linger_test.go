package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestLeaseThatLingersCostsNoCommandAndIsRecalledByPush(t *testing.T) {
	server := testservers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	a := newEngine(t, client)
	b := newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	nothing := func(context.Context) error { return nil }
	for _, e := range []*engine{a, b} {
		if err := e.Ping(t.Context()); err != nil { // it is subscribed
			t.Fatal(err)
		}
	}
	p := core.Policy{Key: "k", Linger: time.Hour, TTL: time.Hour}
	if err := a.Do(t.Context(), p, nothing); err != nil {
		t.Fatal(err)
	}
	began, before := time.Now(), scripts(commands(t, client))
	for range 100 {
		if err := a.Do(t.Context(), p, nothing); err != nil {
			t.Fatal(err)
		}
	}
	// None, but that what the store has said is not taken for true for more than a second.
	if n := scripts(commands(t, client)) - before; n > int(time.Since(began)/time.Second) {
		t.Errorf("100 holds of a lease that lingers took %d commands", n)
	}
	// It would be there for an hour.
	if err := b.Do(bounded(t), core.Policy{Key: "k", Wait: core.Forever}, nothing); err != nil {
		t.Fatal(err)
	}
	if err := a.Do(t.Context(), p, nothing); err != nil {
		t.Fatal(err)
	}
	eventually(t, "who does not wait recalls it too", func() bool {
		err := b.Do(bounded(t), core.Policy{Key: "k"}, nothing)
		if err != nil && !errors.Is(err, core.ErrBusy) {
			t.Fatal(err)
		}
		return err == nil
	})
}
