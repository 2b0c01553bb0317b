package redislock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

// New returns a driver for the locks in one Redis server, replicated or not, or
// in one Cluster. It does no I/O, and the client stays the caller's: closing a
// session does not close it.
//
// A [*redis.Ring] is refused when the driver is opened: its subscriptions live
// on other servers than its keys, so that no waiter would ever be woken.
func New(client redis.UniversalClient, opts ...Option) driver.Driver {
	c := config{
		address:     addressOf(client),
		connections: 4,
		wire: func(timeout time.Duration) (wire, error) {
			return newClientWire(client, timeout)
		},
		channel: randomChannel,
		jitter:  mathrand.Float64,
	}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	return &redisDriver{c}
}

type redisDriver struct{ config }

type config struct {
	address     string // of the server, for an operator
	connections int
	wire        func(timeout time.Duration) (wire, error)
	channel     func() string
	names       func(string) string // of plain keys; or nil
	replicas    *confirmation       // or nil
	jitter      func() float64      // in [0, 1)
}

// Option configures a driver.
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithConnections sets how many batches of acquisitions and releases may be
// under way at once to a server that answers within 0.2 ms, each on a connection of the
// client's pool. While there are few callers up to eight of them send for themselves, each
// on a connection. To a server that takes longer, one request or batch is under way for every
// 50 µs that it takes, up to three quarters of the client's PoolSize and 32. Renewals use
// up to two connections more, and pushes one outside the pool. The default is 4. More seldom
// help, since concurrent calls share the next batch. Open refuses an n below 1.
func WithConnections(n int) Option {
	return optionFunc(func(c *config) { c.connections = n })
}

// Capabilities says what one Redis server offers.
func (d *redisDriver) Capabilities() driver.Capabilities {
	if d.names != nil {
		return driver.Capabilities{
			Name: "redis-plain", Address: d.address, Modes: []driver.Mode{driver.Exclusive}, MinTTL: minTTL, Tokens: driver.ClockTokens, LateTokens: true,
			After: true, Written: true, Unordered: true, Wake: 2 * maxPoll,
		}
	}
	return driver.Capabilities{
		Name:    "redis",
		Address: d.address,
		Modes:   []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL:  minTTL,
		Tokens:  driver.ClockTokens,
		Strict:  true,
		Oust:    true,
		Recall:  true,
		Bounds:  true,
		After:   true,
		Keep:    true,
		Wake:    time.Second,

		LateTokens: true,
		Written:    true,

		Identity: true,
		Trace:    true,
	}
}

// Open starts a session.
func (d *redisDriver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case c.Sink == nil:
		return nil, errors.New("open a Redis lock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open a Redis lock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	case d.connections < 1:
		return nil, fmt.Errorf("open a Redis lock session: WithConnections(%d); at least 1 is needed", d.connections)
	}
	if err := d.replicas.check(c.StoreTimeout); err != nil {
		return nil, fmt.Errorf("open a Redis lock session: %w", err)
	}
	w, err := d.wire(c.StoreTimeout)
	if err != nil {
		return nil, fmt.Errorf("open a Redis lock session: %w", err)
	}
	if own, ok := w.(*clientWire); ok {
		if err := own.confirmBy(d.replicas, c.StoreTimeout); err != nil {
			return nil, fmt.Errorf("open a Redis lock session: %w", err)
		}
	}
	s := newSession(d.config, c, w)
	if s.sharesKeys() {
		return &onlyPlain{s, s}, nil
	}
	return s, nil
}

func newSession(c config, dc driver.Config, w wire) *session {
	s := &session{
		sink:    dc.Sink,
		timeout: dc.StoreTimeout,
		channel: named(c.channel(), dc.Identity),
		jitter:  c.jitter,
		names:   c.names,
		confirm: c.replicas != nil,
		Life:    kit.NewLife("redis", "the server"),
	}
	if own, ok := w.(*clientWire); ok {
		s.database = own.database
	}
	s.calls = s.newLanes(w, c.connections, w.connections())
	s.renewals = s.newLanes(w, 2, 2) // one dead connection must not hold up all leases
	s.claims.init()
	s.cleaner = newCleaner(s.Life, s.calls, s.timeout, s.jitter)
	s.listener = newListener(s.Life, w, s.channel, s.jitter)
	s.listener.onUp, s.listener.onPush = s.catchUp, s.pushed
	return s
}

func (s *session) newLanes(w wire, width, most int) *lanes {
	return &lanes{wire: w, newLane: func() *lane {
		return &lane{wire: w, ctx: s.Ctx, workers: &s.sending, width: width, maxWidth: most, timeout: s.timeout, created: time.Now()}
	}}
}

// session is one engine's session at the server.
type session struct {
	sink     driver.Sink
	timeout  time.Duration // of one attempt
	channel  string        // of this session's pushes
	database int           // of the server
	jitter   func() float64
	names    func(string) string // of plain keys, or nil: see WithKeys
	confirm  bool                // by replicas: see WithReplicas

	calls    *lanes // acquisitions and endings
	renewals *lanes // lanes of their own, so that a burst of acquisitions cannot starve them
	claims   claims
	busy     busyKeys
	cleaner  *cleaner
	listener *listener

	places  sync.Pool // of *place, for Begin
	endings sync.Pool // of *ending, for End

	*kit.Life
	sending sync.WaitGroup // the lanes' workers
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error {
	return s.Life.Close(ctx, s.cleaner.drain, func() {
		s.calls.close()
		s.renewals.close()
		s.sending.Wait()
	})
}

// Ping reports whether the server answers and permits every command, the keys
// and the channel that the driver needs. What is denied half-way through a
// script would leave the earlier half done. It leaves no trace.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	s.listener.ensure()
	byName := command{script: probe, key: probeKey, args: []any{s.channel}}
	bySource := byName
	bySource.source = true
	calls := s.ask(ctx, s.calls, bySource, byName)
	for _, c := range calls {
		if c.reply.err != nil {
			return missing(fmt.Sprintf("eval and evalsha on keys %s*", KeyPrefix), c.reply.err)
		}
	}
	value := calls[0].reply.value
	failed, ok := value.([]any)
	if !ok {
		return classify(fmt.Errorf("%w probe: %T instead of a list", protocol.ErrMalformed, value))
	}
	var names []string
	var first error
	for i := 0; i+1 < len(failed); i += 2 {
		name, _ := failed[i].(string)
		text, _ := failed[i+1].(string)
		names = append(names, name)
		if first == nil {
			first = classify(serverError(text))
		}
	}
	if first != nil {
		return missing(strings.Join(names, ", ")+fmt.Sprintf(" on keys %s* and channels %s*", KeyPrefix, ChannelPrefix), first)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, silence(s.timeout))
	defer cancel()
	if err := s.listener.wait(ctx); err != nil {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return context.Cause(ctx)
		}
		return missing(fmt.Sprintf("subscribe on channels %s*", ChannelPrefix), err)
	}
	return s.confirmed(ctx)
}

// missing adds to a permanent error what the driver needs.
func missing(what string, err error) error {
	p := new(driver.PermanentError)
	if !errors.As(err, &p) {
		return err
	}
	return &driver.PermanentError{Err: fmt.Errorf("the server does not permit what locks need: %s: %w", what, p.Err)}
}

//go:embed probe.lua
var probeSource string

var probe = &protocol.Script{Name: "probe", Source: probeSource, SHA: kit.ScriptName(probeSource)}

// probeKey is no lock's key, since those are never empty.
var probeKey = protocol.Key("")
