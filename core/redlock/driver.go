package redlock

import (
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core/driver"
)

// Driver keeps locks in independent Redis servers, by majority. It is safe for
// concurrent use, and any number of engines may share it.
type Driver struct {
	wires        func(timeout time.Duration) ([]wire, error)
	nodeTimeout  time.Duration
	restartDelay time.Duration
	jitter       func() float64 // in [0, 1)
	clock        func() int64   // of the nodes, see health.clock
	meters       metric.MeterProvider
	health       *health
	gauge        gauge
}

// New returns a driver for the locks in independent Redis masters, one client for
// each: an odd number, at least 3, which is checked when the driver is opened. Every
// process gives the same masters; the order does not matter. It does no I/O, and the
// clients stay the caller's: closing a session does not close them.
//
// A client of a Sentinel or of a Cluster does not serve: a failover brings up a master
// that may have forgotten what the old one had acknowledged, at once.
func New(nodes []*redis.Client, opts ...Option) *Driver {
	names := make([]string, len(nodes))
	for i, c := range nodes {
		if c != nil {
			names[i] = c.Options().Addr
		}
	}
	return newDriver(names, func(timeout time.Duration) ([]wire, error) {
		if err := checkNodes(nodes); err != nil {
			return nil, err
		}
		ws := make([]wire, len(nodes))
		for i, c := range nodes {
			ws[i] = newClientWire(c, timeout)
		}
		return ws, nil
	}, opts)
}

func newDriver(names []string, wires func(time.Duration) ([]wire, error), opts []Option) *Driver {
	d := &Driver{wires: wires, jitter: mathrand.Float64, health: newHealth(names)}
	d.clock = d.health.clock
	for _, o := range opts {
		if o != nil {
			o.apply(d)
		}
	}
	return d
}

// checkNodes refuses nodes with which no safe majority is possible.
func checkNodes(nodes []*redis.Client) error {
	if n := len(nodes); n > maxNodes {
		return fmt.Errorf("%d nodes; pass at most %d: five bear two failures, and more cost more than they bring", n, maxNodes)
	} else if n < 3 || n%2 == 0 {
		return fmt.Errorf("%d nodes; pass an odd number of independent masters, at least 3: "+
			"with fewer a single failure stops every lock, and an even number bears no more failures than one less", n)
	}
	seen := make(map[string]bool)
	for i, c := range nodes {
		if c == nil {
			return fmt.Errorf("the client of node %d is nil; pass one made by redis.NewClient", i)
		}
		addr := c.Options().Addr
		switch {
		case addr == "FailoverClient":
			return fmt.Errorf("the client of node %d is one of a Sentinel, whose failovers forget; pass one made by redis.NewClient for each master", i)
		case seen[addr]:
			return fmt.Errorf("two clients for %s; a node counts once, so pass one client for each master", addr)
		}
		seen[addr] = true
	}
	return nil
}

// maxNodes fit into claim.lost.
const maxNodes = 63

// Option configures a driver.
type Option interface{ apply(*Driver) }

type option func(*Driver)

func (o option) apply(d *Driver) { o(d) }

// WithNodeTimeout bounds each attempt to reach one node. It is never longer than the
// engine's store time-out and a quarter of the lease's TTL (of one below 2 s: half, and
// at most 500 ms); those two are the bound if d is 0, the default. Below 0 is an error
// of Open.
//
// A node that does not answer delays nobody while a majority does. The bound counts
// when it is not known whether there is a majority: then an acquisition takes that
// much longer.
func WithNodeTimeout(d time.Duration) Option {
	return option(func(r *Driver) { r.nodeTimeout = d })
}

// WithRestartDelay keeps a node out of every majority until d after its data began,
// which is when it is first asked for a vote, by its own clock: when it is new, and
// when it has lost everything. Give it the
// largest TTL in use, and a little more; the package's documentation says what happens
// without it. The default is 0, no delay. Below 0 is an error of Open.
//
// The first use of new nodes waits for it too. All processes should give the same.
func WithRestartDelay(d time.Duration) Option {
	return option(func(r *Driver) { r.restartDelay = d })
}

// WithMeterProvider sets where the gauge lock.node.condition goes: for each node
// (server.address, server.port) and each condition (lock.node.condition) 1 if the node was last
// seen so, and else 0. The default, and nil, is OpenTelemetry's global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return option(func(d *Driver) { d.meters = p })
}

// Capabilities says what the masters offer together.
func (*Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name:   "redlock",
		Modes:  []driver.Mode{driver.Exclusive},
		MinTTL: minTTL,
		Tokens: driver.ClockTokens,
		Keep:   true,
		Oust:   true,
		Recall: true,
		Wake:   time.Second,

		Identity: true,
		Trace:    true,
	}
}

// States returns the nodes as they were last seen, in the order of New. It asks
// nobody: a node that no session has asked for a while may have changed since. With
// WithRestartDelay one that has restarted empty has no vote for that delay.
func (d *Driver) States() []driver.Node { return d.health.states(time.Now()) }
