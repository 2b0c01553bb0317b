package redisrecords_test

import (
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
