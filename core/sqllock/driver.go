package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
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
		c.pollInterval, c.sleepInterval = defaultPoll, notifiedPoll
	case c.pollInterval < minPoll || c.pollInterval > maxPoll:
		return nil, fmt.Errorf("sqllock: make a driver: WithPoll(%v); use %v to %v", c.pollInterval, minPoll, maxPoll)
	}
	if c.pollSet {
		c.sleepInterval = c.pollInterval
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
		Bounds: true,
		Keep:   true,
		Oust:   true,
		Recall: true,
		Wake:   s.wakeInterval(),

		Identity: true,
		Trace:    true,
	}
}

// wakeInterval returns how long a waiter may miss that its key is free.
func (c *config) wakeInterval() time.Duration {
	if c.d == MySQL {
		return max(c.pollInterval, c.sleepInterval)
	}
	return c.pollInterval
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

// placeTTL returns how long a place in the queue lasts without a refresh.
func placeTTL(ttl time.Duration) time.Duration { return min(ttl, maxPlaceTTL) }

// Option configures a driver.
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithPoll sets how often a session that waits or holds polls its claims, at least: every 10
// ms to 10 s. One statement polls all of them. It is the longest time for which a waiter can
// miss that its key is free, and Capabilities.Wake: a quarter of it is reserved for the
// request that follows the poll. Without notifications a session whose queues move polls
// more often, up to every 10 ms, except in MySQL while all its waiters sleep until they
// are woken. A session that waits polls four times while its place
// lasts, and also when the lease that it waits for ends without a renewal. The default is
// 200 ms, or 1 s with notifications. In MySQL it is 200 ms, or 1 s while all waiters of a session
// sleep; Capabilities.Wake is then 1 s.
func WithPoll(every time.Duration) Option {
	return optionFunc(func(c *config) { c.pollInterval, c.pollSet = every, true })
}

// WithNotifications wakes sessions by PostgreSQL's NOTIFY, before their next poll. MySQL has
// no notifications, and needs none. Nil is the default: polling alone.
func WithNotifications(n Notifications) Option {
	return optionFunc(func(c *config) { c.notifications = n })
}

// Notifications receives PostgreSQL's notifications, which database/sql cannot. It is safe
// for concurrent use. The tests in core/lab/databases/sqllock implement it with pgx in twenty
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
	sleepInterval time.Duration // of a session whose waiters are asleep
	pollSet       bool          // by WithPoll
	notifications Notifications
}

// session implements driver.Session. Its calls make decisions (decision.go), each in an attempt
// that the caller may abandon (attempt.go). Its loops poll, listen and sweep.
type session struct {
	config
	tables   tables
	identity string
	sink     driver.Sink
	timeout  time.Duration // for the answer to a statement
	id       sessionID

	claims       ownClaims
	hearing      hearing
	batons       batons
	spent        spentClaims
	keyMutexes   keyMutexes
	renewalSlots chan struct{} // few, which leaves connections for other calls
	startOnce    sync.Once     // startLoops

	*kit.Life
	debts *kit.Debts[driver.Owner]
}

func newSession(c config, dc driver.Config) *session {
	s := &session{config: c, identity: dc.Identity, sink: dc.Sink, timeout: dc.StoreTimeout, id: newSessionID(), renewalSlots: make(chan struct{}, 4), Life: kit.NewLife("sql", "the server")}
	s.tables.init(c)
	s.claims.init()
	s.batons.init(c.d)
	s.spent.init(c, s.Life)
	s.debts = kit.NewDebts[driver.Owner](s.Life, 4) // few at a time, which leaves connections for other calls
	return s
}

// Close ends the session.
func (s *session) Close(ctx context.Context) error { return s.Life.Close(ctx, s.debts.Drain, nil) }

// Ping reports whether the server answers, the tables exist, their rows can be locked and changed,
// no setting of the connection is in the way, and notifications come if there are to be any.
func (s *session) Ping(ctx context.Context) error {
	if err := s.Enter(); err != nil {
		return err
	}
	defer s.Leave()
	_, _, err := runAttempt(ctx, s, s.Closing, func(ctx context.Context, _ *attempt) (struct{}, error) {
		return struct{}{}, s.inTx(ctx, func(tx tx) error { return s.ping(ctx, tx) }) // nothing was changed
	})
	if err == nil && s.notifications != nil {
		s.startOnce.Do(s.startLoops)
		err = s.pingNotifications(ctx)
	}
	return err
}

// pingNotifications reports whether the session hears what it sends to itself.
func (s *session) pingNotifications(ctx context.Context) error {
	switch s.awaitHearing(ctx, s.timeout+s.timeout/2) { // somewhat longer than it takes to find out
	case heard:
		return nil
	case deaf:
		return refused("a notification that was sent does not come: the connection of WithNotifications goes through a transaction pooler, or to another database; connect it to the server itself, or leave WithNotifications out")
	}
	switch {
	case s.Open.Err() != nil:
		return driver.ErrClosed
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return &kit.SilenceError{Store: "sql", After: s.timeout, Last: s.hearing.trouble()}
}

func (s *session) ping(ctx context.Context, tx tx) error {
	if err := s.checkSettings(ctx, tx); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, s.q.lockRow, []byte(nil))
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE lockaround_lock SET token = 0 WHERE lock_key IS NULL`); err != nil { // there is none
		return err
	}
	var n int64
	return tx.QueryRowContext(ctx, s.q.ping).Scan(&n)
}

// checkSettings refuses those settings of a connection that the statements do not overrule.
func (s *session) checkSettings(ctx context.Context, tx tx) error {
	if s.d == PostgreSQL {
		var readOnly, standby bool
		if err := tx.QueryRowContext(ctx, `SELECT current_setting('transaction_read_only')::bool, pg_is_in_recovery()`).Scan(&readOnly, &standby); err != nil {
			return err
		}
		if readOnly && !standby {
			return refused("default_transaction_read_only is on; set it off for the connections of the locks, or for their user")
		}
		return nil
	}
	var safe bool
	if err := tx.QueryRowContext(ctx, `SELECT @@sql_safe_updates LIMIT 1`).Scan(&safe); err != nil {
		return err
	}
	if safe { // the places of a session are no key of their table's
		return refused("sql_safe_updates is on, which refuses some of the locks' statements; set it off for their connections")
	}
	// SET timestamp stops the clock that {now} reads, also within one second.
	var clock [2]int64
	for i := range clock {
		if err := tx.QueryRowContext(ctx, s.d.sql(`SELECT {now} FROM (SELECT SLEEP(0.001)) s{all}`)).Scan(&clock[i]); err != nil {
			return err
		}
	}
	if clock[0] == clock[1] {
		return refused("the connection's clock stands still, as after SET timestamp; leave that out, or set it to DEFAULT")
	}
	return nil
}

func refused(why string) error {
	return &driver.PermanentError{Err: errors.New("sql: " + why)}
}
