package sale

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
)

// counter counts what the locks cost at their store.
type counter struct {
	grants atomic.Int64 // leases that the store granted
	trips  atomic.Int64 // round trips to the store
}

// counted is a driver that counts the calls of another one. A driver is an
// ordinary interface, so wrapping one from outside is all it takes.
type counted struct {
	driver.Driver
	counter *counter

	// calls says that each call is one round trip: so it is for a store that
	// has no wire to count on.
	calls bool
}

func (d counted) Open(c driver.Config) (driver.Session, error) {
	s, err := d.Driver.Open(c)
	if err != nil {
		return nil, err
	}
	return countedSession{Session: s, counter: d.counter, calls: d.calls}, nil
}

type countedSession struct {
	driver.Session
	counter *counter
	calls   bool
}

func (s countedSession) trip() {
	if s.calls {
		s.counter.trips.Add(1)
	}
}

func (s countedSession) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s.trip()
	g, err := s.Session.Acquire(ctx, r)
	if err == nil {
		s.counter.grants.Add(1)
	}
	return g, err
}

func (s countedSession) Renew(ctx context.Context, rs []driver.Renewal) []driver.Renewed {
	s.trip()
	return s.Session.Renew(ctx, rs)
}

func (s countedSession) Release(ctx context.Context, rs []driver.Ending) []error {
	s.trip()
	return s.Session.Release(ctx, rs)
}

// wire counts round trips where they happen: one for a command, and one for a
// pipeline however many commands it carries, and to however many nodes of a
// Cluster at once.
type wire struct{ counter *counter }

func (w wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.counter.trips.Add(1)
		return next(ctx, cmd)
	}
}

func (w wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.counter.trips.Add(1)
		return next(ctx, cmds)
	}
}
