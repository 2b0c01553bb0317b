package redislock

import (
	mathrand "math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
)

// New returns a driver for the locks in one Redis server, replicated or not, or
// in one Cluster. It does no I/O, and the client stays the caller's: closing a
// session does not close it.
//
// A [*redis.Ring] is refused when the driver is opened: its subscriptions live
// on other servers than its keys, so that no waiter would ever be woken.
func New(client redis.UniversalClient, opts ...Option) driver.Driver {
	c := config{
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
			Name: "redis-plain", Modes: []driver.Mode{driver.Exclusive}, MinTTL: minTTL, Tokens: driver.ClockTokens, LateTokens: true,
			After: true, Written: true, Unordered: true, Wake: 2 * maxPoll,
		}
	}
	return driver.Capabilities{
		Name:   "redis",
		Modes:  []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL: minTTL,
		Tokens: driver.ClockTokens,
		Strict: true,
		Oust:   true,
		Recall: true,
		After:  true,
		Keep:   true,
		Wake:   time.Second,

		LateTokens: true,
		Written:    true,

		Identity: true,
		Trace:    true,
	}
}
