package sqlqueue

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/decorator/internal/sqltext"
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

// Dialect is the SQL that a database understands. The zero value is none.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota + 1 // 11 or later
	MySQL                         // 8.0 or later, and MariaDB 10.6 or later
)

// String returns the name of the database.
func (d Dialect) String() string {
	switch d {
	case PostgreSQL:
		return "PostgreSQL"
	case MySQL:
		return "MySQL"
	}
	return "no dialect"
}

func (d Dialect) check() error {
	if d != PostgreSQL && d != MySQL {
		return fmt.Errorf("sqlqueue: dialect %d is unknown; use sqlqueue.PostgreSQL or sqlqueue.MySQL", d)
	}
	return nil
}

// sql translates a statement into the dialect.
func (d Dialect) sql(statement string) string { return sqltext.Translate(statement, d == PostgreSQL) }

// rolledBack reports whether the database has rolled a transaction back because of others, so
// that the same one may succeed when it is repeated.
func rolledBack(err error) bool {
	switch sqltext.Code(err) {
	case "40001", "40P01", "55P03", "25P03", // PostgreSQL: serialization, deadlock, lock time-out, idle in the transaction
		"1213", "1205", "1020": // MySQL: deadlock, lock time-out, a row that has changed
		return true
	}
	return false
}

// failure says what was being done when the database failed.
func failure(doing string, err error) error {
	switch sqltext.Code(err) {
	case "42P01", "1146":
		return fmt.Errorf("sqlqueue: %s: a table is missing; run Migrate, or the statements of Schema: %w", doing, err)
	case "42703", "1054":
		return fmt.Errorf("sqlqueue: %s: a column is missing; the tables are of another version: %w", doing, err)
	case "1665":
		return fmt.Errorf("sqlqueue: %s: binlog_format is STATEMENT, which cannot log READ COMMITTED; set it to ROW: %w", doing, err)
	case "42501", "1142", "1143":
		return fmt.Errorf("sqlqueue: %s: the user has no right to it; grant SELECT, INSERT, UPDATE and DELETE on both tables: %w", doing, err)
	}
	return fmt.Errorf("sqlqueue: %s: %w", doing, err)
}

// micros is a duration in whole microseconds, not less than it.
func micros(d time.Duration) int64 { return int64((d + time.Microsecond - 1) / time.Microsecond) }

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// Schema returns the statements that create the tables unless they exist, in order and without
// semicolons. It is for users with migrations of their own. It returns nil for an unknown
// dialect.
func Schema(d Dialect) (statements []string) { return slices.Clone(schemas[d]) }

// Migrate creates the tables unless they exist, in the database and schema that the
// connections of db start in. Several processes may call it at once, also while others use the
// queues. It needs the right to create tables, which a process that uses queues does not: SELECT,
// INSERT, UPDATE and DELETE are enough for that.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	if err := usable(db, d); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return failure("create the tables", err)
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	statements := schemas[d]
	if d == PostgreSQL {
		// Transactions that create the same table at once fail with errors of the catalogue.
		statements = append([]string{`SELECT pg_advisory_xact_lock(hashtext('lockaround'))`}, statements...)
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return failure("create the tables", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return failure("create the tables", err)
	}
	return nil
}

func usable(db *sql.DB, d Dialect) error {
	if db == nil {
		return errors.New("sqlqueue: the *sql.DB is nil; pass one made by sql.Open")
	}
	return d.check()
}

// Columns whose names end in _us have microseconds since 1970 by the server's clock. Those of
// lockaround_queue_key are told in line; state is one of the constants of state.go. Indexes of
// PostgreSQL are constraints, so that a table and its indexes are one statement, which locks nothing
// if the table exists.
var schemas = map[Dialect][]string{
	PostgreSQL: {
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS lockaround_queue_key (
    queue_name    bytea    NOT NULL,
    digest        bytea    NOT NULL,
    lock_key      bytea    NOT NULL,
    %s,
    PRIMARY KEY (queue_name, digest),
    UNIQUE (queue_name, due_us, digest),
    UNIQUE (queue_name, idle_us, digest)
) WITH (fillfactor = 70)`, columns("bigint   NOT NULL DEFAULT 0", "smallint NOT NULL DEFAULT 0", "bytea    NOT NULL DEFAULT ''")),
		`CREATE TABLE IF NOT EXISTS lockaround_queue_item (
    queue_name bytea    NOT NULL,
    digest     bytea    NOT NULL,
    sequence   bigint   NOT NULL,
    id         bytea    NOT NULL,
    payload    bytea    NOT NULL,
    trace      bytea    NOT NULL,
    state      smallint NOT NULL,
    attempts   bigint   NOT NULL,
    added_us   bigint   NOT NULL,
    ended_us   bigint   NOT NULL,
    PRIMARY KEY (queue_name, digest, sequence),
    UNIQUE (queue_name, digest, id)
)`,
	},
	MySQL: {
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS lockaround_queue_key (
    queue_name    VARBINARY(256)  NOT NULL,
    digest        VARBINARY(22)   NOT NULL,
    lock_key      VARBINARY(1024) NOT NULL,
    %s,
    PRIMARY KEY (queue_name, digest),
    KEY lockaround_queue_due (queue_name, due_us),
    KEY lockaround_queue_idle (queue_name, idle_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`, columns("BIGINT   NOT NULL DEFAULT 0", "SMALLINT NOT NULL DEFAULT 0", "VARBINARY(22) NOT NULL DEFAULT ''")),
		`CREATE TABLE IF NOT EXISTS lockaround_queue_item (
    queue_name VARBINARY(256) NOT NULL,
    digest     VARBINARY(22)  NOT NULL,
    sequence   BIGINT   NOT NULL,
    id         VARBINARY(255) NOT NULL,
    payload    LONGBLOB NOT NULL,
    trace      VARBINARY(255) NOT NULL,
    state      SMALLINT NOT NULL,
    attempts   BIGINT   NOT NULL,
    added_us   BIGINT   NOT NULL,
    ended_us   BIGINT   NOT NULL,
    PRIMARY KEY (queue_name, digest, sequence),
    UNIQUE KEY lockaround_queue_id (queue_name, digest, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
	},
}

// columns declares those of line.
func columns(number, flag, name string) (all string) {
	for i, f := range (&line{}).fields() {
		if i > 0 {
			all += ",\n    "
		}
		kind := number
		switch f.value.(type) {
		case *bool:
			kind = flag
		case *[]byte:
			kind = name
		}
		all += fmt.Sprintf("%-13s %s", f.column, kind)
	}
	return all
}

// statements are those whose text is the same for every call. The comments list their
// parameters; a key is the queue's name and the digest.
type statements struct {
	lock      string // key
	lockOwn   string // the patience, and the key; of PostgreSQL only
	insertKey string // key, lock key, time until what has ended is deleted
	floor     string // queue
	save      string // a line's values, key
	now       string
	read      string // key, sequence
	mark      string // state, attempts, ended, key, sequence
	end       string // the same, and its payload goes
	endRest   string // state, ended, key, first sequence
	prune     string // key, head, first that is kept, ended before
	remove    string // key, sequence

	insert string // key, sequence, ID, payload, trace, appended
	find   string // key, ID

	due      string // queue
	claim    string // queue, until, how many
	sweep    string // queue, idle until, how many
	setFloor string // queue, sequence, sequence + 1

	status  string // key, ID
	parked  string // queue, how many
	stats   string // queue
	channel string // channel, payload
}

func newStatements(d Dialect) *statements {
	var names, sets []string
	for _, f := range (&line{}).fields() {
		names, sets = append(names, "k."+f.column), append(sets, f.column+" = ?")
	}
	const (
		ofKey  = ` WHERE queue_name = ? AND digest = ?`
		ofItem = ofKey + ` AND sequence = ?`
	)
	q := &statements{
		lock: `SELECT {now}, '', ` + strings.Join(names, ", ") + ` FROM lockaround_queue_key k` + ofKey + ` FOR UPDATE`,
		insertKey: fmt.Sprintf(`INSERT INTO lockaround_queue_key (queue_name, digest, lock_key, due_us, idle_us, prune_us)
VALUES (?, ?, ?, %d, {now}, {now} + ?)`, int64(never)),
		floor: `SELECT COALESCE(MAX(sequence), 0) FROM lockaround_queue_key WHERE queue_name = ? AND digest = ''`,
		save:  `UPDATE lockaround_queue_key SET ` + strings.Join(sets, ", ") + ofKey,
		now:   `SELECT {now}`,
		read: `SELECT n.t, i.id, i.payload, i.trace, i.added_us FROM (SELECT {now} AS t) n
LEFT JOIN lockaround_queue_item i ON i.queue_name = ? AND i.digest = ? AND i.sequence = ?`,
		mark:    `UPDATE lockaround_queue_item SET state = ?, attempts = ?, ended_us = ?` + ofItem,
		end:     `UPDATE lockaround_queue_item SET state = ?, attempts = ?, ended_us = ?, payload = ''` + ofItem,
		endRest: `UPDATE lockaround_queue_item SET state = ?, ended_us = ?, payload = ''` + ofKey + ` AND sequence >= ?`,
		prune:   `DELETE FROM lockaround_queue_item` + ofKey + ` AND sequence < ? AND (sequence < ? OR ended_us <= ?)`,
		remove:  `DELETE FROM lockaround_queue_item` + ofItem,
		insert: `INSERT INTO lockaround_queue_item (queue_name, digest, sequence, id, payload, trace, state, attempts, added_us, ended_us)
VALUES (?, ?, ?, ?, ?, ?, 0, 0, ?, 0)`,
		find: `SELECT sequence, state, ended_us FROM lockaround_queue_item` + ofKey + ` AND id = ? FOR UPDATE`,

		due:   `SELECT n.t, (SELECT MIN(due_us) FROM lockaround_queue_key WHERE queue_name = ?) FROM (SELECT {now} AS t) n`,
		claim: `SELECT digest FROM lockaround_queue_key WHERE queue_name = ? AND due_us <= ? ORDER BY due_us LIMIT ?`,
		sweep: `SELECT digest FROM lockaround_queue_key WHERE queue_name = ? AND idle_us > 0 AND idle_us <= ? ORDER BY idle_us LIMIT ?`,
		setFloor: fmt.Sprintf(`INSERT INTO lockaround_queue_key (queue_name, digest, lock_key, sequence, head, due_us)
VALUES (?, '', '', ?, ?, %d)`, int64(never)),

		status: `SELECT n.t, k.head, k.attempts, k.running, k.parked, i.sequence, i.state, i.attempts, i.ended_us
FROM (SELECT {now} AS t) n CROSS JOIN lockaround_queue_key k
JOIN lockaround_queue_item i ON i.queue_name = k.queue_name AND i.digest = k.digest
WHERE k.queue_name = ? AND k.digest = ? AND i.id = ?`,
		parked: `SELECT k.lock_key, k.head, k.sequence, i.id, i.ended_us FROM lockaround_queue_key k
JOIN lockaround_queue_item i ON i.queue_name = k.queue_name AND i.digest = k.digest AND i.sequence = k.head
WHERE k.queue_name = ? AND k.idle_us = 0 AND k.parked = 1 ORDER BY i.ended_us, k.digest LIMIT ?`,
		stats: `SELECT MAX(n.t), COALESCE(SUM(k.sequence - k.head + 1), 0), COALESCE(MIN(i.added_us), 0), COALESCE(SUM(k.parked), 0)
FROM (SELECT {now} AS t) n LEFT JOIN lockaround_queue_key k ON k.queue_name = ? AND k.idle_us = 0
LEFT JOIN lockaround_queue_item i ON i.queue_name = k.queue_name AND i.digest = k.digest AND i.sequence = k.head`,
		channel: `SELECT pg_notify(?, ?)`,
	}
	if d == PostgreSQL {
		// A process that stops in the middle of a step must not keep the key's row locked.
		q.lockOwn = strings.Replace(q.lock, `''`, `set_config('idle_in_transaction_session_timeout', ?, true)`, 1)
		// A conflict of any index: transactions that wait for the same key's insertion deadlock over
		// an index that is not named when it is rolled back.
		q.insertKey = strings.Replace(q.insertKey, "{now} + ?", "{now} + CAST(? AS bigint)", 1) + ` ON CONFLICT DO NOTHING`
		q.insert += ` ON CONFLICT (queue_name, digest, id) DO NOTHING`
		q.setFloor += ` ON CONFLICT (queue_name, digest) DO UPDATE
SET sequence = GREATEST(lockaround_queue_key.sequence, excluded.sequence), head = GREATEST(lockaround_queue_key.head, excluded.head)`
	} else {
		// IGNORE would take a shared lock of a key's row that exists, and two transactions that both
		// upgrade it deadlock. With an item's row that cannot be: the key's is locked.
		q.insertKey += ` ON DUPLICATE KEY UPDATE queue_name = queue_name`
		q.insert = strings.Replace(q.insert, "INSERT", "INSERT IGNORE", 1)
		q.setFloor += ` ON DUPLICATE KEY UPDATE sequence = GREATEST(sequence, VALUES(sequence)), head = GREATEST(head, VALUES(head))`
	}
	for _, s := range []*string{
		&q.lock, &q.lockOwn, &q.insertKey, &q.floor, &q.save, &q.now, &q.read, &q.mark, &q.end, &q.endRest, &q.prune, &q.remove, &q.insert, &q.find,
		&q.due, &q.claim, &q.sweep, &q.setFloor, &q.status, &q.parked, &q.stats, &q.channel,
	} {
		*s = d.sql(*s)
	}
	return q
}
