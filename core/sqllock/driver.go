package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

const (
	// minTTL leaves a waiter, whose place lasts no longer than its TTL, time for
	// several refreshes on a busy server.
	minTTL = time.Second

	// maxEnrol is how long the place of a waiter lasts at most if its process dies.
	maxEnrol = 3 * time.Second

	defaultPoll = 200 * time.Millisecond
	pushedPoll  = time.Second

	minPoll = 10 * time.Millisecond
	maxPoll = 10 * time.Second
)

// Notifications is where a driver for PostgreSQL hears what others tell it by NOTIFY,
// which database/sql has no way to receive. It is safe for concurrent use. The tests in
// core/sqllock/databases have one in twenty lines of pgx: connect, Exec "LISTEN", ready,
// and notify after each WaitForNotification.
type Notifications interface {
	// Listen listens on the channel, on a connection of its own that no transaction
	// pooler shares, until ctx ends or the connection breaks, and returns why; the
	// driver calls it again after a pause. It calls ready once the server has
	// confirmed the LISTEN, and after that notify with the payload of each
	// notification, one at a time. Neither blocks.
	Listen(ctx context.Context, channel string, ready func(), notify func(payload string)) error
}

// Option configures a driver.
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithPoll sets how long at most a session that waits or holds leaves its claims without a
// look: from 10 ms to 10 s. One statement serves all of them. It is how long a waiter may
// sleep beside a free key, and Capabilities.Wake: of it a quarter is for the request after
// the look. Without notifications a session whose queues move looks sooner, up to every
// 10 ms. One that waits looks four times in the life of its place, and when the lease that
// it waits for ends without a renewal. The default is 200 ms, or 1 s with notifications.
func WithPoll(every time.Duration) Option {
	return optionFunc(func(c *config) { c.poll, c.polls = every, true })
}

// WithNotifications has sessions woken by PostgreSQL's NOTIFY instead of by their next
// look. MySQL has none. Nil is the default: polling alone.
func WithNotifications(n Notifications) Option {
	return optionFunc(func(c *config) { c.source = n })
}

type config struct {
	db     *sql.DB
	d      Dialect
	q      *queries
	poll   time.Duration
	polls  bool // it was set
	source Notifications
}

type sqlDriver struct{ config }

// New returns a driver for the locks in the tables of [Migrate]. It does no I/O: what the
// server refuses shows in Ping. The pool stays the caller's: closing a session does not
// close it. If it is bounded (SetMaxOpenConns), let the locks have it for themselves: calls
// that hold its connections in transactions would wait for one more, to renew or release
// the lock around the transaction, and it for them.
//
// It is an error if db is nil, the dialect unknown, a poll shorter than 10 ms or longer
// than 10 s, or if notifications are asked of MySQL.
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
	case c.source != nil && d != PostgreSQL:
		return nil, fmt.Errorf("sqllock: make a driver: %s has no notifications; leave WithNotifications out, and choose WithPoll", d)
	case !c.polls && c.source != nil:
		c.poll = pushedPoll
	case !c.polls:
		c.poll = defaultPoll
	case c.poll < minPoll || c.poll > maxPoll:
		return nil, fmt.Errorf("sqllock: make a driver: WithPoll(%v); use %v to %v", c.poll, minPoll, maxPoll)
	}
	c.q = newQueries(d)
	return &sqlDriver{c}, nil
}

func usable(db *sql.DB, d Dialect) error {
	if db == nil {
		return errors.New("the *sql.DB is nil; pass one made by sql.Open")
	}
	return d.check()
}

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
		Wake:   s.poll,
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

func randomName() (n name) {
	_, _ = rand.Read(n[:]) // never fails: crypto/rand aborts the program instead
	return n
}
