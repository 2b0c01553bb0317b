package sqllock

import (
	"database/sql"
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core/driver"
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
	c.q = newQueries(d, true)
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

		Identity: true,
		Trace:    true,
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
