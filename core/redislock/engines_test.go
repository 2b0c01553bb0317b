package redislock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
)

// engine is a core.Engine with a client of its own, as one process has it.
type engine struct {
	*core.Engine
	queued chan driver.ID // what the store has put into its queue
}

// newEngine returns an engine on the client, which it closes too.
func newEngine(t testing.TB, client redis.UniversalClient, options ...core.Option) *engine {
	t.Helper()
	e := &engine{queued: make(chan driver.ID, 1024)}
	options = append([]core.Option{core.WithNamespace("test"), core.WithStoreTimeout(time.Second)}, options...)
	locks, err := core.New(watchedDriver{redislock.New(client), e.queued}, options...)
	if err != nil {
		t.Fatal(err)
	}
	e.Engine = locks
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close the engine: %v", err)
		}
		if err := client.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return e
}

// watchedDriver tells when the store has put an Acquire into its queue.
type watchedDriver struct {
	driver.Driver
	queued chan driver.ID
}

func (d watchedDriver) Open(c driver.Config) (driver.Session, error) {
	c.Sink = watchedSink{c.Sink, d.queued}
	return d.Driver.Open(c)
}

type watchedSink struct {
	driver.Sink
	queued chan driver.ID
}

func (s watchedSink) Waiting(id driver.ID) {
	s.Sink.Waiting(id)
	note(s.queued, id)
}

// take acquires a key, also if that needs the end of an outage.
func (e *engine) take(t testing.TB, key string, ttl time.Duration) *core.Lease {
	t.Helper()
	ctx := within(t, time.Minute)
	for {
		lease, err := e.Acquire(ctx, core.Policy{Key: key, TTL: ttl, Wait: core.Forever})
		if errors.Is(err, core.ErrUnavailable) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			t.Errorf("acquire %s: %v", key, err)
			return nil
		}
		return lease
	}
}

// queue is take in the background; it returns when the store has queued it.
func (e *engine) queue(t testing.TB, key string, ttl time.Duration) <-chan *core.Lease {
	t.Helper()
	got := make(chan *core.Lease, 1)
	go func() { got <- e.take(t, key, ttl) }()
	for {
		select {
		case id := <-e.queued:
			if id.Key == "test/"+key {
				return got
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("nobody queues for %s", key)
		}
	}
}

// giveBack releases a lease that is held, also if that needs the end of an outage.
func giveBack(t testing.TB, l *core.Lease) {
	t.Helper()
	if err := l.Release(within(t, 20*time.Second)); err != nil {
		t.Errorf("release %s: %v", l.Key(), err)
	}
}

// answered asks the store whether a lease is held until it says.
func answered(t testing.TB, l *core.Lease) error {
	t.Helper()
	ctx := within(t, time.Minute)
	for {
		if err := l.Check(ctx); !errors.Is(err, core.ErrUnavailable) || ctx.Err() != nil {
			return err
		}
	}
}

// handOver passes a key to and fro ten times. Refreshes alone, one a second,
// would need ten seconds.
func handOver(t testing.TB, a, b *engine, key string) {
	t.Helper()
	lease := a.take(t, key, time.Minute)
	began := time.Now()
	for range 10 {
		got := b.queue(t, key, time.Minute)
		giveBack(t, lease)
		lease = <-got
		a, b = b, a
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("ten hand-overs took %v: no push woke the waiter", took)
	}
	giveBack(t, lease)
}
