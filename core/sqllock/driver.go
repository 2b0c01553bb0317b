package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// minTTL is long enough for several refreshes on a busy server: a waiter's place
	// lasts no longer than its TTL.
	minTTL = time.Second

	// maxPlaceTTL is how long a waiter's place lasts at most after its process has died.
	maxPlaceTTL = 3 * time.Second

	defaultPoll  = 200 * time.Millisecond
	notifiedPoll = time.Second

	minPoll = 10 * time.Millisecond
	maxPoll = 10 * time.Second
)

// New returns a driver for the locks in the tables of [Migrate]. It does no I/O: call Ping
// to find out whether the server accepts the driver's statements. The pool stays the
// caller's: closing a session does not close it. If the pool is bounded (SetMaxOpenConns),
// use a separate one for the locks. Otherwise callers whose transactions hold all its
// connections wait for one more to renew or release their lock, and deadlock.
//
// It is an error if db is nil, the dialect is unknown, the poll interval is shorter than 10
// ms or longer than 10 s, or if notifications are requested with MySQL.
func New(db *sql.DB, d Dialect, opts ...Option) (driver.Driver, error) {
	c := config{db: db, d: d}
	for _, o := range opts {
		if o != nil {
			o.apply(&c)
		}
	}
	if err := usable(db, d); err != nil {
		return nil, fmt.Errorf("sqllock: make a driver: %w", err)
	}
	switch {
	case c.notifications != nil && d != PostgreSQL:
		return nil, fmt.Errorf("sqllock: make a driver: %s has no notifications; leave WithNotifications out, and choose WithPoll", d)
	case !c.pollSet && c.notifications != nil:
		c.pollInterval = notifiedPoll
	case !c.pollSet:
		c.pollInterval = defaultPoll
	case c.pollInterval < minPoll || c.pollInterval > maxPoll:
		return nil, fmt.Errorf("sqllock: make a driver: WithPoll(%v); use %v to %v", c.pollInterval, minPoll, maxPoll)
	}
	c.q = newQueries(d)
	return &sqlDriver{c}, nil
}

type sqlDriver struct{ config }

// Uses reports whether pool is the *sql.DB of the locks.
func (s *sqlDriver) Uses(pool any) bool { return pool == any(s.db) }

// Capabilities says what a database offers.
func (s *sqlDriver) Capabilities() driver.Capabilities {
	return driver.Capabilities{
		Name:   map[Dialect]string{PostgreSQL: "postgresql", MySQL: "mysql"}[s.d],
		Modes:  []driver.Mode{driver.Exclusive, driver.Shared, driver.Semaphore},
		MinTTL: minTTL,
		Tokens: driver.ClockTokens,
		Strict: true,
		Keep:   true,
		Oust:   true,
		Recall: true,
		Wake:   s.pollInterval,
	}
}

// Open starts a session.
func (s *sqlDriver) Open(c driver.Config) (driver.Session, error) {
	switch {
	case c.Sink == nil:
		return nil, errors.New("open an SQL lock session: Config.Sink is nil")
	case c.StoreTimeout <= 0:
		return nil, fmt.Errorf("open an SQL lock session: Config.StoreTimeout is %v; it must be positive", c.StoreTimeout)
	}
	return newSession(s.config, c), nil
}

// Option configures a driver.
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithPoll sets how often a session that waits or holds polls its claims, at least: every 10
// ms to 10 s. One statement polls all of them. It is the longest time for which a waiter can
// miss that its key is free, and Capabilities.Wake: a quarter of it is reserved for the
// request that follows the poll. Without notifications a session whose queues move polls
// more often, up to every 10 ms. A session that waits polls four times while its place
// lasts, and also when the lease that it waits for ends without a renewal. The default is
// 200 ms, or 1 s with notifications.
func WithPoll(every time.Duration) Option {
	return optionFunc(func(c *config) { c.pollInterval, c.pollSet = every, true })
}

// WithNotifications wakes sessions by PostgreSQL's NOTIFY, before their next poll. MySQL has
// no notifications. Nil is the default: polling alone.
func WithNotifications(n Notifications) Option {
	return optionFunc(func(c *config) { c.notifications = n })
}

// Notifications receives PostgreSQL's notifications, which database/sql cannot. It is safe
// for concurrent use. The tests in core/sqllock/databases implement it with pgx in twenty
// lines: connect, Exec "LISTEN", call ready, and call notify after each WaitForNotification.
type Notifications interface {
	// Listen listens on the channel until ctx ends or the connection breaks, and returns
	// why. The driver calls it again after a pause. The connection is Listen's own, and
	// does not go through a transaction pooler. Listen calls ready once the server has
	// confirmed the LISTEN, and then notify with the payload of each notification, one at
	// a time. Neither function blocks.
	Listen(ctx context.Context, channel string, ready func(), notify func(payload string)) error
}

type config struct {
	db            *sql.DB
	d             Dialect
	q             *queries
	pollInterval  time.Duration
	pollSet       bool // by WithPoll
	notifications Notifications
}
