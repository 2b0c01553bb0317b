package redislock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestIdleWaiterCostsOneCommandARefresh counts what candidates send while another process holds the key and
// nothing happens: a refresh of their places each, not more often than every 28% of the 3 s that a place lasts.
func TestIdleWaiterCostsOneCommandARefresh(t *testing.T) {
	t.Parallel()
	const candidates, refreshes, least = 3, 3, 840 * time.Millisecond
	addr := testservers.Redis(t).Addr()
	p := core.Policy{Key: "leader", Wait: core.Forever, TTL: time.Hour} // no renewal comes between
	lease, err := engineOn(t, addr).Acquire(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	led := make(chan error, candidates)
	for range candidates {
		e := engineOn(t, addr)
		go func() {
			led <- e.Do(t.Context(), p, func(context.Context) error { return nil })
		}()
	}
	first := engineOn(t, addr)
	eventually(t, "all candidates in the queue", func() bool {
		st, err := first.Inspect(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		return st.Waiting == candidates
	})
	client := newClient(t, redis.Options{Addr: addr})
	sent, before, began := 0, commands(t, client), time.Now()
	eventually(t, "some refreshes of each", func() bool {
		sent = scripts(commands(t, client)) - scripts(before)
		return sent >= candidates*refreshes
	})
	took := time.Since(began)
	if most := candidates * (int(took/least) + 1); sent > most {
		t.Errorf("%d idle candidates have sent %d commands in %v, want at most %d", candidates, sent, took, most)
	}
	t.Logf("%d idle candidates: %d commands in %v, %.2f of each in a second", candidates, sent, took.Round(time.Millisecond), float64(sent)/candidates/took.Seconds())
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range candidates {
		if err := <-led; err != nil {
			t.Error(err)
		}
	}
}
