package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestClusterReshardingLosesNoLease moves a slot between two masters without a
// pause while three processes use its keys: for 3 s, or a minute if full counts are
// asked for, or for as long as LOCKAROUND_COUNTS says of reshard.
func TestClusterReshardingLosesNoLease(t *testing.T) {
	if testing.Short() {
		t.Skip("moves slots for seconds")
	}
	t.Parallel()
	duration := counts.Time(t, "reshard", 3*time.Second, time.Minute)
	c := testservers.RedisCluster(t, 3, 0)
	masters := c.Masters()
	keys, slot := keysOfOneSlot(t, c, masters[0], 3)
	var load load
	for _, key := range keys[:2] {
		load.keys = append(load.keys, &loadedKey{name: key})
	}
	for n := range 2 { // that stay where they are
		key, _ := keyOn(t, c, masters[2], n)
		load.keys = append(load.keys, &loadedKey{name: key})
	}

	holder := member(t, c)
	held := holder.take(t, keys[2], lasting)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var workers sync.WaitGroup
	for range 3 {
		e := member(t, c)
		for i := range 8 {
			workers.Go(func() { load.use(ctx, t, e, load.keys[i%len(load.keys)]) })
		}
	}
	workers.Go(func() { // many renewals
		for ctx.Err() == nil {
			if err := held.Extend(ctx, lasting); errors.Is(err, core.ErrLost) {
				t.Errorf("the lease held throughout: %v", err)
				return
			}
		}
	})
	moves := 0
	began, limit := time.Now(), time.Now().Add(duration+hang)
	// At least ten moves, and a grant of each key in a second's time.
	enough := func() bool {
		return moves >= 10 && !slices.ContainsFunc(load.keys, func(k *loadedKey) bool { return k.grants.Load() < int64(duration/time.Second) })
	}
	for ; time.Since(began) < duration || !enough() && time.Now().Before(limit); moves++ {
		c.Move(slot, masters[(moves+1)%2])
	}
	stop()
	workers.Wait()

	if err := answered(t, held); err != nil {
		t.Errorf("the lease held throughout: %v", err)
	}
	giveBack(t, held)
	var grants int64
	var stall time.Duration
	for i, k := range load.keys {
		grants += k.grants.Load()
		if i < 2 {
			stall = max(stall, k.stall)
		}
	}
	if !enough() {
		t.Errorf("only %d moves and %d grants", moves, grants)
	}
	t.Attr("figure-17", fmt.Sprintf("%v, %d moves of the slot, %d grants by 3 processes, %d lost leases, %d overlaps, %d token regressions, %d unavailable; the longest stall of a key %v",
		duration, moves, grants, load.lost.Load(), load.overlaps.Load(), load.regressions.Load(), load.unavailable.Load(), stall.Round(time.Millisecond)))
}

// keysOfOneSlot returns n of an engine's keys that share a slot of that master.
func keysOfOneSlot(t *testing.T, c *testservers.Cluster, master *testservers.Server, n int) (keys []string, slot int) {
	t.Helper()
	bySlot := map[int][]string{}
	for i := range 1_000_000 {
		key := fmt.Sprint("m", i)
		slot := c.Slot(protocol.Key("test/" + key))
		bySlot[slot] = append(bySlot[slot], key)
		if len(bySlot[slot]) == n && c.Master(slot) == master {
			return bySlot[slot], slot
		}
	}
	t.Fatal("no such keys")
	return nil, 0
}

// load is what several processes do to some keys.
type load struct {
	keys                                     []*loadedKey
	lost, overlaps, regressions, unavailable atomic.Int64
}

// loadedKey is a key under load. What is not atomic is guarded by the lock of
// the key itself, which is under test: a race is a failure too.
type loadedKey struct {
	name   string
	inside atomic.Int32
	grants atomic.Int64

	token int64
	last  time.Time
	stall time.Duration // the longest time between two grants
}

// use takes the key and gives it back until ctx ends.
func (l *load) use(ctx context.Context, t *testing.T, e *engine, k *loadedKey) {
	for ctx.Err() == nil {
		err := e.Do(ctx, core.Policy{Key: k.name, TTL: lasting, Wait: core.Forever}, func(ctx context.Context) error {
			if k.inside.Add(1) != 1 {
				l.overlaps.Add(1)
				t.Errorf("%s has two holders", k.name)
			}
			lease, _ := core.LeaseFrom(ctx)
			if lease.Token() <= k.token {
				l.regressions.Add(1)
				t.Errorf("%s: token %d after %d", k.name, lease.Token(), k.token)
			}
			now := time.Now()
			if k.grants.Add(1) > 1 {
				k.stall = max(k.stall, now.Sub(k.last))
			}
			k.token, k.last = lease.Token(), now
			k.inside.Add(-1)
			return nil
		})
		switch {
		case err == nil, ctx.Err() != nil:
		case errors.Is(err, core.ErrUnavailable):
			l.unavailable.Add(1)
		case errors.Is(err, core.ErrLost):
			l.lost.Add(1)
			t.Errorf("%s: %v", k.name, err)
		default:
			t.Errorf("%s: %v", k.name, err)
		}
	}
}
