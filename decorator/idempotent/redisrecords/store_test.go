package redisrecords_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/decorator/idempotent/idempotenttest"
	"github.com/lockaround/lockaround/decorator/idempotent/redisrecords"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: testservers.Redis(t).Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func newStore(t *testing.T, c redis.UniversalClient) *redisrecords.Store {
	t.Helper()
	s, err := redisrecords.New(c, "shop:once:")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	c := newClient(t)
	idempotenttest.Run(t, func(t *testing.T) idempotent.Store { return newStore(t, c) })
}

func TestClientsThatMissRecordsAreRefused(t *testing.T) {
	plain := redis.NewClient(&redis.Options{})
	defer func() { _ = plain.Close() }()
	replicas := redis.NewClusterClient(&redis.ClusterOptions{ReadOnly: true})
	defer func() { _ = replicas.Close() }()
	for _, try := range []struct {
		client redis.UniversalClient
		prefix string
	}{{nil, "a:"}, {plain, ""}, {replicas, "a:"}} {
		if _, err := redisrecords.New(try.client, try.prefix); err == nil {
			t.Errorf("%T, %q: taken", try.client, try.prefix)
		}
	}
}

func TestWhatSomethingElseHasWrittenIsLeftAlone(t *testing.T) {
	c := newClient(t)
	s := newStore(t, c)
	claim := idempotent.Claim{Run: idempotent.Run{1}, Alone: 1e9, Keep: 1e12}
	for _, foreign := range []string{"x", string(make([]byte, 100))} {
		if err := c.Set(t.Context(), "shop:once:k", foreign, 0).Err(); err != nil {
			t.Fatal(err)
		}
		_, begin := s.Begin(t.Context(), "k", claim)
		_, finish := s.Finish(t.Context(), "k", claim, nil)
		if giveUp := s.GiveUp(t.Context(), "k", claim); begin == nil || finish == nil || giveUp == nil {
			t.Errorf("%v, %v, %v", begin, finish, giveUp)
		}
		if now := c.Get(t.Context(), "shop:once:k").Val(); now != foreign {
			t.Errorf("%q became %q", foreign, now)
		}
	}
}

// counting counts round trips.
type counting struct{ trips atomic.Int32 }

func (*counting) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.trips.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.trips.Add(1)
		return next(ctx, cmds)
	}
}

func TestEachMethodIsOneRoundTrip(t *testing.T) {
	c := newClient(t)
	count := &counting{}
	s := newStore(t, c)
	claim := idempotent.Claim{Run: idempotent.Run{1}, Alone: 1e9, Keep: 1e12}
	methods := map[string]func() error{
		"begin":   func() error { _, err := s.Begin(t.Context(), "k", claim); return err },
		"finish":  func() error { _, err := s.Finish(t.Context(), "k", claim, []byte("answer")); return err },
		"give up": func() error { return s.GiveUp(t.Context(), "k", claim) },
		"forget":  func() error { return s.Forget(t.Context(), "k") },
	}
	for _, do := range methods { // the server learns the scripts
		_ = do()
	}
	c.AddHook(count)
	for name, do := range methods {
		if err := do(); err != nil || count.trips.Swap(0) != 1 {
			t.Errorf("%s: %v, and not one round trip", name, err)
		}
	}
}
