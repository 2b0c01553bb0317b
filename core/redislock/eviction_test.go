package redislock_test

import (
	"fmt"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestTokensRiseOverEvictions has the server evict a lock that is held, with all that it
// knew of the key: 5 times, or 100 if full counts are asked for, or as often as
// LOCKAROUND_COUNTS says.
func TestTokensRiseOverEvictions(t *testing.T) {
	if testing.Short() {
		t.Skip("evicts in many rounds")
	}
	evictions := counts.Of(t, "evictions", 5, 100)
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	set := func(name, value string) {
		if err := a.client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	regressions := 0
	for range evictions {
		g := a.take("k", lasting)
		set("maxmemory-policy", "allkeys-lru")
		set("maxmemory", "1")
		eventually(t, "the eviction", func() bool {
			return a.client.Exists(t.Context(), protocol.Key("k")).Val() == 0
		})
		set("maxmemory", "0")
		set("maxmemory-policy", "noeviction")
		next := b.take("k", lasting)
		if next.Token <= g.Token {
			regressions++
			t.Errorf("token %d after %d", next.Token, g.Token)
		}
		b.release(next)
	}
	t.Attr("figure-14", fmt.Sprintf("%d evictions: %d token regressions", evictions, regressions))
}
