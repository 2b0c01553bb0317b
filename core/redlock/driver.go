package redlock

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/metric"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// Driver keeps locks in independent Redis servers, by majority. It is safe for
// concurrent use, and any number of engines may share it.
type Driver struct {
	address      string // of the nodes, for an operator
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
	d := &Driver{address: strings.Join(names, ", "), wires: wires, jitter: mathrand.Float64, health: newHealth(names)}
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
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name:    "redlock",
		Address: d.address,
		Modes:   []driver.Mode{driver.Exclusive},
		MinTTL:  minTTL,
		Tokens:  driver.ClockTokens,
		Keep:    true,
		Oust:    true,
		Recall:  true,
		Wake:    time.Second,

		Identity: true,
		Trace:    true,
	}
}

// States returns the nodes as they were last seen, in the order of New. It asks
// nobody: a node that no session has asked for a while may have changed since. With
// WithRestartDelay one that has restarted empty has no vote for that delay.
func (d *Driver) States() []driver.Node { return d.health.states(time.Now()) }

// Open starts a session.
func (d *Driver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case c.Sink == nil:
		return nil, errors.New("open a redlock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open a redlock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	case d.nodeTimeout < 0:
		return nil, fmt.Errorf("open a redlock session: WithNodeTimeout(%v); it must not be negative", d.nodeTimeout)
	case d.restartDelay < 0:
		return nil, fmt.Errorf("open a redlock session: WithRestartDelay(%v); it must not be negative", d.restartDelay)
	}
	ws, err := d.wires(c.StoreTimeout)
	if err != nil {
		return nil, fmt.Errorf("open a redlock session: %w", err)
	}
	if err := d.gauge.start(d.meters, d.health); err != nil {
		return nil, fmt.Errorf("open a redlock session: %w", err)
	}
	return newSession(d, c, ws), nil
}

func newSession(d *Driver, c driver.Config, ws []wire) *session {
	s := &session{
		sink:         c.Sink,
		timeout:      c.StoreTimeout,
		nodeTimeout:  d.nodeTimeout,
		restartDelay: d.restartDelay,
		jitter:       d.jitter,
		clock:        d.clock,
		nodes:        ws,
		health:       d.health,
		quorum:       majority(len(ws)),
		channel:      newChannel(c.Identity),
		Life:         kit.NewLife("redlock", "a majority of nodes"),
	}
	s.stopGauge = sync.OnceFunc(d.gauge.stop)
	s.claims.all = make(map[driver.Owner]*claim)
	for _, w := range ws {
		s.lanes = append(s.lanes, newLane(s.Ctx, w, &s.sending))
		s.renewals = append(s.renewals, newLane(s.Ctx, w, &s.sending))
		s.cleaners = append(s.cleaners, newCleaner(s.Life, w, s.timeout, s.jitter))
	}
	return s
}

// session is one engine's connection to the nodes.
type session struct {
	sink         driver.Sink
	timeout      time.Duration // of one attempt to reach the store
	nodeTimeout  time.Duration // of WithNodeTimeout
	restartDelay time.Duration // of WithRestartDelay
	jitter       func() float64
	clock        func() int64 // of the nodes; 0: not known
	nodes        []wire
	health       *health // of the nodes
	quorum       int
	channel      string // of this session's pushes

	claims     claims
	lanes      []*lane    // one for each node
	renewals   []*lane    // for renewals alone, which a burst of acquisitions must not delay
	cleaners   []*cleaner // one for each node
	listenOnce sync.Once

	*kit.Life
	stopGauge func()         // removes the session from the gauge, once
	sending   sync.WaitGroup // the calls of all lanes, and their goroutines
}

// minTTL leaves room for two rounds of messages to the nodes.
const minTTL = 100 * time.Millisecond

// bound is how long one attempt to reach a node may take for a lease of ttl: a quarter of
// the TTL, or up to half of a short one, since a connection may have to be made.
func (s *session) bound(ttl time.Duration) time.Duration {
	b := min(s.timeout, max(ttl/4, min(ttl/2, 500*time.Millisecond)))
	if s.nodeTimeout > 0 {
		b = min(b, s.nodeTimeout)
	}
	return b
}

// ask sends commands to a node and calls done once, on another goroutine: with the
// replies, with a kit.SilenceError when the bound has passed, or with the error of ctx if it
// ended before they were sent. done must not block. The end of one lease is sent
// after the answer to its vote, if that comes soon.
func (s *session) ask(ctx context.Context, node int, bound time.Duration, cmds []command, done func([]reply)) {
	l := s.lanes[node]
	if cmds[0].op == opRenew {
		l = s.renewals[node]
	}
	send := func() {
		l.enqueue(ctx, bound, cmds, func(rs []reply) {
			if !errors.Is(rs[0].err, context.Canceled) { // the caller gave up; it says nothing about the node
				s.health.noteReply(node, cmds[0].op, &rs[0], bound)
			}
			done(rs)
		})
	}
	if cmds[0].op != opEnd || len(cmds) > 1 || !s.claims.afterVote(node, cmds[0].owner, send) {
		send()
	}
}

// nodeReplies are the replies of one node.
type nodeReplies struct {
	node    int
	replies []reply
}

// askAll sends the commands to all nodes at once, each for at most bound, and
// calls onReplies for each node until it returns true or all nodes have replied. Later
// replies go to onLate, on other goroutines. It returns an error if the caller or the
// session ended before.
func (s *session) askAll(ctx context.Context, bound time.Duration, cmds []command, onReplies func(nodeReplies) (enough bool), onLate func(nodeReplies)) error {
	var mu sync.Mutex
	stopped := false
	in := make(chan nodeReplies, len(s.nodes))
	for i := range s.nodes {
		s.ask(s.Ctx, i, bound, cmds, func(rs []reply) {
			b := nodeReplies{i, rs}
			mu.Lock()
			defer mu.Unlock()
			if !stopped {
				in <- b
			} else if onLate != nil {
				onLate(b)
			}
		})
	}
	var err error
	for n, enough := 0, false; n < len(s.nodes) && !enough && err == nil; {
		select {
		case b := <-in:
			enough = onReplies(b)
			n++
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.Closing:
			err = driver.ErrClosed
		}
	}
	mu.Lock()
	defer mu.Unlock()
	stopped = true
	for onLate != nil && len(in) > 0 {
		onLate(<-in)
	}
	return err
}

// Close ends the session. A minority of nodes that do not answer does not hold it up.
func (s *session) Close(ctx context.Context) error {
	s.stopGauge()
	return s.Life.Close(ctx, func(ctx context.Context) bool {
		// A node that is down for good must not hold up a program's end.
		ctx, cancel := context.WithTimeout(ctx, 2*s.timeout)
		defer cancel()
		s.awaitReplies(ctx)
		return s.awaitEnds(ctx)
	}, s.sending.Wait)
}

// closeGrace is how long Close waits for replies to requests whose callers have returned,
// and how long it waits for the other nodes when a majority has confirmed every end, so that
// every key is free.
const closeGrace = 300 * time.Millisecond

// awaitReplies waits for the replies to requests on their way, which may have to be undone.
func (s *session) awaitReplies(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, closeGrace)
	defer cancel()
	idle := make(chan struct{})
	go func() {
		s.sending.Wait()
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
	}
}

// awaitEnds waits until the nodes have confirmed every end that they are owed, and reports
// whether a majority has.
func (s *session) awaitEnds(ctx context.Context) bool {
	ctx, cancel := context.WithCancel(ctx)
	var draining sync.WaitGroup
	defer draining.Wait()
	defer cancel()
	results := make(chan bool, len(s.cleaners))
	for _, c := range s.cleaners {
		draining.Go(func() { results <- c.owed.Drain(ctx) })
	}
	confirmed := 0
	grace := time.NewTimer(time.Hour)
	defer grace.Stop()
	for range s.cleaners {
		select {
		case ok := <-results:
			if !ok {
				continue
			}
			if confirmed++; confirmed == s.quorum {
				grace.Reset(closeGrace)
			}
		case <-grace.C:
			return true
		}
	}
	return confirmed >= s.quorum
}
