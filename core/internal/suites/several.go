package suites

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/hiccups"
)

// RunSeveral kills -9 processes that take several keys of one policy and release them, over and
// over, at any moment of that. It sees to it that all keys are free within the TTL.
func (s Crash) RunSeveral(t *testing.T, addr string, kills int) {
	d, disconnect, err := s.Open(addr)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := newEngine(d)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(locks.Close(), disconnect()); err != nil {
			t.Errorf("close the engine and its client: %v", err)
		}
	}()
	j := job{Addr: addr}
	for i := range 10 {
		j.Keys = append(j.Keys, fmt.Sprint("cart ", i))
	}
	for range kills {
		h, err := child.Start(t, cmp.Or(s.Role, Holder), j)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 + rand.IntN(3) {
			if _, err := h.Out.ReadString('\n'); err != nil {
				t.Fatalf("the holder ended: %v", err)
			}
		}
		time.Sleep(rand.N(10 * time.Millisecond))
		machine := hiccups.Start(t)
		h.Kill()
		took := takeAll(t, locks, j.Keys, s.TTL)
		// What ten free keys take is the machine's time, and no part of the promise.
		if free := takeAll(t, locks, j.Keys, s.TTL); took > machine.Allow(s.TTL+s.After+drivertest.Slack)+free {
			t.Errorf("all keys were free %v after a kill, and %v when they were free before; want at most %v more", took, free, s.TTL+s.After)
		}
	}
}

// takeAll takes one key after the other, and returns how long that took.
func takeAll(t *testing.T, locks *core.Engine, keys []string, ttl time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	for _, key := range keys {
		lease, err := locks.Acquire(context.Background(), core.Policy{Key: key, TTL: ttl, Wait: time.Minute})
		if err != nil {
			t.Fatalf("%s after a kill: %v", key, err)
		}
		if err := lease.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(start)
}
