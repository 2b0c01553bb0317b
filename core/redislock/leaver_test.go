package redislock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/testservers"
)

// leaverRole makes a child a process that ends right after a release that is sent.
const leaverRole = "leaver"

// leaver is what such a process is told.
type leaver struct{ Addr, Key string }

func leave(told string) error {
	var l leaver
	if err := json.Unmarshal([]byte(told), &l); err != nil {
		return err
	}
	locks, err := engineOfAChild(l.Addr)
	if err != nil {
		return err
	}
	for range 4 { // how the server ends a lease is known after the first
		lease, err := locks.Acquire(context.Background(), core.Policy{Key: l.Key, Release: core.Sent, Wait: time.Second})
		if err == nil {
			err = lease.Release(context.Background())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestProcessThatEndsRightAfterASentReleaseLeavesNoKeyTaken(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	const processes = 12
	taken := 0
	for i := range processes {
		key := fmt.Sprint("k", i)
		p, err := child.Start(t, leaverRole, leaver{server.Addr(), key})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		if st, err := e.Inspect(bounded(t), key); err != nil {
			t.Fatal(err)
		} else if st.Held {
			taken++
		}
	}
	if taken > 0 {
		t.Errorf("%d of %d processes left their key taken", taken, processes)
	}
}
