//go:build unix

package decorator_test

import (
	"context"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/decorator/internal/redisserver"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
	"github.com/lockaround/lockaround/decorator/serialtest"
)

// openSerial opens what the serial function of a process needs.
func openSerial(rdb *redis.Client) (*core.Engine, *redisqueue.Store, error) {
	e, err := core.New(redislock.New(rdb), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return nil, nil, err
	}
	store, err := redisqueue.New(rdb, "shop:queue:")
	return e, store, err
}

// TestSerialProcess is a worker process that writes down what it runs.
func TestSerialProcess(t *testing.T) {
	roomtest.Be(t, func(p serialtest.Plan) error {
		e, store, err := openSerial(roomtest.Client(p.Store))
		if err != nil {
			return err
		}
		return serialtest.Work(context.Background(), p, e, store)
	})
}

// serialProcess is such a process.
type serialProcess struct{ *roomtest.Child }

func startSerial(t *testing.T, p serialtest.Plan) serialProcess {
	t.Helper()
	c := roomtest.Start(t, "TestSerialProcess", p)
	c.Begin(t)
	return serialProcess{c}
}

func (p serialProcess) Kill() {
	p.Child.Kill()
	_ = p.Wait() // reports the kill
}
func (p serialProcess) Stop() error { return p.Process().Signal(syscall.SIGSTOP) }
func (p serialProcess) Cont() error { return p.Process().Signal(syscall.SIGCONT) }

// TestHistoryOverProcesses runs items by processes that are killed, stopped and cut off.
func TestHistoryOverProcesses(t *testing.T) {
	t.Parallel()
	items := counts.Of(t, "items", 2000, 30_000)
	plan := serialtest.Plan{TTL: 2 * time.Second, Takes: 2 * time.Millisecond, Fails: 50}
	spaced := plan
	spaced.Spacing = 20 * time.Millisecond
	for name, h := range map[string]serialtest.History{
		"many keys": {Plan: plan, Keys: max(items/100, 4), Each: 100},
		"spaced":    {Plan: spaced, Keys: max(items/25, 4), Each: 25},
	} {
		t.Run(name, func(t *testing.T) {
			h.Plan.Store = redisserver.Start(t).Addr
			rdb := roomtest.Client(h.Plan.Store)
			t.Cleanup(func() { _ = rdb.Close() })
			e, store, err := openSerial(rdb)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Close() })
			h.Locks, h.Queues = e, store
			h.Start = func(_ testing.TB, p serialtest.Plan) serialtest.Process { return startSerial(t, p) }
			h.Faults = []serialtest.Fault{{Name: "all connections cut", Cause: func() {
				_ = rdb.ClientKillByFilter(context.Background(), "TYPE", "normal", "SKIPME", "yes").Err() // as many as there are
			}}}
			serialtest.Run(t, h)
		})
	}
}
