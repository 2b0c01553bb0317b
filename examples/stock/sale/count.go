package sale

import (
	"context"
	"net"
	"sync/atomic"

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

// dial returns what a Redis client dials with, so that round trips are counted where they
// happen: a client writes once for a command, and once for a pipeline however many it
// carries. Its greeting of a new connection counts as well.
func (c *counter) dial() func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: openTime}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return wire{conn, c}, nil
	}
}

// wire is a connection whose writes are counted.
type wire struct {
	net.Conn
	counter *counter
}

func (w wire) Write(b []byte) (int, error) {
	w.counter.trips.Add(1)
	return w.Conn.Write(b)
}
