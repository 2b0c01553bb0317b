package sqlqueue

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// Store is a [queue.Store] in a database. It is safe for concurrent use.
type Store struct {
	db            *sql.DB
	dialect       Dialect
	statements    *statements
	poll          time.Duration
	notifications Notifications

	mu    sync.Mutex
	local map[string]*localListeners // by the queue's name
}

var _ queue.Store = (*Store)(nil)

// Option configures a [Store]. A nil Option changes nothing.
type Option func(*Store)

// WithPoll sets how often a process without notifications looks for items that other
// processes have appended: every 10 ms to 10 s, one statement each time. The default is 2.6 s.
// A worker's own looks count, so that an idle process has two statements in 5 s. What the
// same Store has appended is told at once.
func WithPoll(every time.Duration) Option { return func(s *Store) { s.poll = every } }

// WithNotifications tells workers of items by PostgreSQL's NOTIFY, in place of looking for
// them. Every process that appends needs it too: those without tell nobody, and their items
// wait until a worker looks, at most 5 s. MySQL has no notifications. Nil is the default.
func WithNotifications(n Notifications) Option { return func(s *Store) { s.notifications = n } }

// Notifications receives PostgreSQL's notifications, which database/sql cannot. It is safe
// for concurrent use. What implements sqllock.Notifications implements this as well: the tests of
// core/lab/databases/sqllock do so with pgx in twenty lines.
type Notifications interface {
	// Listen listens on the channel until ctx ends or the connection breaks, and returns
	// why. The connection is Listen's own, and does not go through a transaction pooler.
	// Listen calls ready once the server has confirmed the LISTEN, and then notify with the
	// payload of each notification, one at a time. Neither function blocks.
	Listen(ctx context.Context, channel string, ready func(), notify func(payload string)) error
}

const (
	defaultPoll = 2600 * time.Millisecond // a worker's own look, every 5 s, comes before the second one
	minPoll     = 10 * time.Millisecond
	maxPoll     = 10 * time.Second
)

// New returns a store of the queues in a database, whose tables [Migrate] has created. Stores
// of the same database share them. New does no I/O, and db stays the caller's. Each operation
// in progress takes one connection of it.
func New(db *sql.DB, d Dialect, opts ...Option) (*Store, error) {
	if err := usable(db, d); err != nil {
		return nil, err
	}
	s := &Store{db: db, dialect: d, statements: newStatements(d), poll: defaultPoll, local: make(map[string]*localListeners)}
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	switch {
	case s.poll < minPoll || s.poll > maxPoll:
		return nil, fmt.Errorf("sqlqueue: WithPoll has %v; use %v to %v", s.poll, minPoll, maxPoll)
	case s.notifications != nil && d != PostgreSQL:
		return nil, errors.New("sqlqueue: MySQL has no notifications; leave WithNotifications out, and use WithPoll for shorter waits")
	}
	return s, nil
}

// Open returns the queue of that name, of 1 to 256 bytes. It is a [queue.TxAppender].
func (s *Store) Open(name string, r queue.Rules) (queue.Queue, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if name == "" || len(name) > 256 {
		return nil, fmt.Errorf("sqlqueue: the queue's name has %d bytes; 1 to 256 are possible: set Policy.Name", len(name))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.local[name]
	if l == nil {
		l = &localListeners{all: make(map[*listener]bool)}
		s.local[name] = l
	}
	return &sqlQueue{Store: s, name: []byte(name), rules: r, channel: channel(name), listeners: l}, nil
}

// channel is where PostgreSQL tells of a queue.
func channel(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "lockaround_queue_" + hex.EncodeToString(sum[:16])
}

// sqlQueue is a queue.Queue.
type sqlQueue struct {
	*Store
	name      []byte
	rules     queue.Rules
	channel   string
	listeners *localListeners

	looked  atomic.Int64 // when it was read last which key is due, by this process's clock in Unix nanoseconds
	sweepAt atomic.Int64 // when to look for keys to forget; likewise
}

var _ queue.TxAppender = (*sqlQueue)(nil)

// Shards returns 1.
func (q *sqlQueue) Shards() int { return 1 }
