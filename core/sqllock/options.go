package sqllock

import (
	"context"
	"database/sql"
	"time"
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
	pollSet       bool // by WithPoll
	notifications Notifications
}
