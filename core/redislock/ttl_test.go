package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestLeaseThatWasHandedOverHasItsTTLSoon hands a key over by a push, which grants no more than the
// time of a place in the queue.
func TestLeaseThatWasHandedOverHasItsTTLSoon(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	a := newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	b := newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	for _, ttl := range []time.Duration{2 * protocol.MaxPlaceTTL, lasting} {
		held := a.take(t, "k", ttl)
		got := b.queue(t, "k", ttl)
		giveBack(t, held)
		l := <-got
		began := time.Now()
		eventually(t, "the lease lasting for its TTL", func() bool { return l.Deadline().Sub(began) > ttl-2*driver.Margin(ttl) })
		took := time.Since(began)
		t.Logf("a lease of %v had its TTL after %v", ttl, took)
		if took > protocol.MaxPlaceTTL/3 {
			t.Errorf("a lease of %v had its TTL after %v", ttl, took)
		}
		giveBack(t, l)
	}
}
