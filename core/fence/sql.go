package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/lockaround/lockaround/core"
)

// DefaultTable is the name of a fence table that has been given none.
const DefaultTable = "lockaround_fence"

// SQL keeps the largest token of each key in a table of the database that the lock
// protects. It is safe for concurrent use; make it with [NewSQL].
//
// # What it excludes
//
// [SQL.Admit] writes the token within the transaction and so locks the row of the
// key until that transaction ends. Call it first: then the transactions of a key
// happen one after the other, in the order of their tokens, at every isolation
// level, whatever happens to the lock.
//
//   - A holder paused before Admit finds the next holder's token, and is refused
//     before it has read anything.
//   - A holder paused after Admit, even with its COMMIT on its way, keeps the next
//     holder waiting in Admit until its transaction has ended. What the next one
//     reads after Admit is what that transaction left.
//
// Called last, before the COMMIT, it would not exclude that the next holder has read
// what a late transaction then changes.
//
// So a client that stops for good in the middle of a transaction, and whose
// connection stays, keeps the key's later holders waiting. Set a time-out that ends idle
// transactions: idle_in_transaction_session_timeout in PostgreSQL,
// idle_transaction_timeout in MariaDB, wait_timeout in MySQL.
//
// # Isolation
//
// What the database returns because transactions came into each other's way is
// returned as it is, and the transaction must be repeated from its beginning:
// PostgreSQL's 40001 at REPEATABLE READ and SERIALIZABLE, deadlocks (40P01, 1213) and
// waits that were too long (55P03, 1205). At these levels a transaction of PostgreSQL
// that had to wait in Admit gets 40001 when the one before it commits; with the lock
// that happens only to holders that overlap, as a holder waits for its lock before it
// begins. MySQL's statements here read what is committed, not the snapshot of
// REPEATABLE READ; MariaDB with innodb_snapshot_isolation may say 1020 instead, which
// is the same as 40001. Tested on PostgreSQL 15 and MariaDB 10.11, at READ COMMITTED,
// REPEATABLE READ and SERIALIZABLE.
//
// # Keys and growth
//
// A key may hold any byte, so its column is binary, and no collation makes two keys
// one. It is bounded because it is indexed: [core.MaxKeyLength] is 1,024 bytes, where
// an index row takes 2,704 in PostgreSQL and 3,072 in InnoDB.
//
// Keys are without the engine's namespace: engines that differ in namespace or in
// store need tables of their own, as their tokens do not compare.
//
// There is one row for each key that was ever admitted. A row may be deleted when no
// process can be alive any more that held the key before the row was last written:
//
//	DELETE FROM lockaround_fence WHERE written_at < now() - interval '90 days'
//	DELETE FROM lockaround_fence WHERE written_at < CURRENT_TIMESTAMP - INTERVAL 90 DAY
//
// in PostgreSQL and MySQL; 90 days stand for more than a process lives or is
// suspended. The statement waits for transactions that have admitted a token, and then
// leaves their rows alone. Run it by itself, in MySQL at READ COMMITTED: otherwise it
// keeps every key locked that it has looked at.
type SQL struct {
	dialect Dialect
	schema  string
	admit   string
	largest string // empty if admit tells by itself
}

// NewSQL returns the fence in a table, which may be written with the name of a schema
// before it, and is [DefaultTable] if empty. It does not look at the database: see
// [SQL.Schema] and [SQL.Migrate].
func NewSQL(d Dialect, table string) (*SQL, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if table == "" {
		table = DefaultTable
	}
	name, err := d.quote("fence table", table, true)
	if err != nil {
		return nil, err
	}
	f := &SQL{dialect: d}
	if d == PostgreSQL {
		f.schema = fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
    lock_key   bytea       NOT NULL PRIMARY KEY CHECK (length(lock_key) BETWEEN 1 AND %d),
    token      bigint      NOT NULL,
    written_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 70)`, name, core.MaxKeyLength)
		f.admit = `INSERT INTO ` + name + ` AS held (lock_key, token) VALUES ($1, $2)
ON CONFLICT (lock_key) DO UPDATE SET token = excluded.token, written_at = clock_timestamp()
WHERE held.token <= excluded.token`
		return f, nil
	}
	f.schema = fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
    lock_key   VARBINARY(%d) NOT NULL PRIMARY KEY,
    token      BIGINT NOT NULL,
    written_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`, name, core.MaxKeyLength)
	// Assignments are made from left to right.
	f.admit = `INSERT INTO ` + name + ` (lock_key, token) VALUES (?, ?)
ON DUPLICATE KEY UPDATE written_at = IF(token <= ?, CURRENT_TIMESTAMP, written_at), token = GREATEST(token, ?)`
	f.largest = `SELECT token FROM ` + name + ` WHERE lock_key = ? FOR UPDATE`
	return f, nil
}

// Schema returns the statement that creates the table unless it is there, without a
// semicolon: for those who run their own migrations.
func (f *SQL) Schema() string { return f.schema }

// Migrate creates the table unless it is there. Any number of processes may do so at
// once.
func (f *SQL) Migrate(ctx context.Context, db *sql.DB) error {
	if err := f.made(); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("fence: create the fence table: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if f.dialect == PostgreSQL {
		// Two that create a table at once get into each other's way in the catalogue.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext($1))`, f.schema); err != nil {
			return fmt.Errorf("fence: create the fence table: %w", err)
		}
	}
	if _, err := tx.ExecContext(ctx, f.schema); err != nil {
		return fmt.Errorf("fence: create the fence table: %w", err)
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence: create the fence table: %w", err)
	}
	return nil
}

// Admit writes t in tx and locks its key until tx ends, or refuses it: with an error
// around [ErrStale] if a transaction with a larger token has committed, around
// [ErrMissing] or [ErrMalformed] if t is no token, or with what the database said. It
// waits for a transaction in progress that has admitted a token of the key. The same
// token may be admitted again.
//
// After an error roll tx back. Call it before the first read: see [SQL]. A
// transaction that needs several keys admits them in sorted order, or two such
// transactions may block each other.
func (f *SQL) Admit(ctx context.Context, tx *sql.Tx, t Token) error {
	if err := f.made(); err != nil {
		return err
	}
	if err := t.Validate(); err != nil {
		return err
	}
	if f.dialect == PostgreSQL {
		done, err := tx.ExecContext(ctx, f.admit, []byte(t.Key), t.Number)
		if err != nil {
			return fmt.Errorf("fence: write the token: %w", err)
		}
		switch n, err := done.RowsAffected(); {
		case err != nil:
			return fmt.Errorf("fence: write the token: %w", err)
		case n == 0:
			return errStaleRow
		}
		return nil
	}
	key := []byte(t.Key)
	if _, err := tx.ExecContext(ctx, f.admit, key, t.Number, t.Number, t.Number); err != nil {
		return fmt.Errorf("fence: write the token: %w", err)
	}
	// An unchanged row counts as none, so the count does not tell equal from larger.
	var largest int64
	if err := tx.QueryRowContext(ctx, f.largest, key).Scan(&largest); err != nil {
		return fmt.Errorf("fence: read the largest token: %w", err)
	}
	if largest > t.Number {
		return errStaleRow
	}
	return nil
}

// AdmitBy is [SQL.Admit] in a transaction of PostgreSQL by another client than
// database/sql, for one token or several. exec is the client's own method, such as pgx's:
//
//	err := fence.AdmitBy(ctx, tokens, tx.Exec, fence.Of(lease)...)
//
// It executes a statement in the transaction, once for each token in their order, and
// returns what tells how many rows were changed. The statement's arguments are a []byte and
// an int64. What is said of Admit goes for AdmitBy: call it before the first read, with
// tokens in the order of their keys, as [Of] returns them, and after an error roll back.
// Without a token it is an [ErrMissing]. MySQL needs more than a statement, and is refused;
// use Admit.
func AdmitBy[R interface{ RowsAffected() int64 }](ctx context.Context, f *SQL, exec func(ctx context.Context, statement string, args ...any) (R, error), tokens ...Token) error {
	if err := f.made(); err != nil {
		return err
	}
	if f.dialect != PostgreSQL {
		return fmt.Errorf("fence: AdmitBy is for PostgreSQL, and the fence table is one of %s; use Admit", f.dialect)
	}
	if len(tokens) == 0 {
		return Token{}.Validate()
	}
	for _, t := range tokens {
		if err := t.Validate(); err != nil {
			return err
		}
		done, err := exec(ctx, f.admit, []byte(t.Key), t.Number)
		if err != nil {
			return fmt.Errorf("fence: write the token: %w", err)
		}
		if done.RowsAffected() == 0 {
			return errStaleRow
		}
	}
	return nil
}

var errStaleRow = fmt.Errorf("fence: %w: a later holder of the lock has written; roll back, and take the lock again", ErrStale)

// Guard returns a guard that admits each token in a transaction of its own: for what a
// holder does outside of db, and to bar its predecessors from db before it reads. The
// writes of a transaction are protected only by [SQL.Admit] in that transaction.
func (f *SQL) Guard(db *sql.DB) Guard { return sqlGuard{f, db} }

type sqlGuard struct {
	fence *SQL
	db    *sql.DB
}

func (g sqlGuard) Admit(ctx context.Context, t Token) error {
	if err := g.fence.made(); err != nil {
		return err
	}
	// A transaction of one row needs no snapshot, which could only make it fail.
	tx, err := g.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return fmt.Errorf("fence: write the token: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if err := g.fence.Admit(ctx, tx, t); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("fence: write the token: %w", err)
	}
	return nil
}

var errNoTable = errors.New("fence: there is no fence table; make one with fence.NewSQL")

func (f *SQL) made() error {
	if f == nil || f.dialect == 0 {
		return errNoTable
	}
	return nil
}

// Dialect is the SQL that a database understands. The zero value is none.
type Dialect uint8

// The dialects. Only InnoDB's tables serve in MySQL: others lock no rows.
const (
	PostgreSQL Dialect = iota + 1 // 9.5 or later
	MySQL                         // and MariaDB
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
		return fmt.Errorf("fence: dialect %d is unknown; use fence.PostgreSQL or fence.MySQL", d)
	}
	return nil
}

// word is what both databases take for a name, in the length that both keep whole.
var word = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// quote quotes a name that may have the name of a schema before it. Nothing but
// words passes, so that no name can end its quotes.
func (d Dialect) quote(what, name string, schema bool) (string, error) {
	parts := strings.Split(name, ".")
	if len(parts) > 2 || len(parts) == 2 && !schema {
		return "", fmt.Errorf("fence: the %s has %d names with dots between them; at most one schema goes before a table", what, len(parts))
	}
	mark := `"`
	if d == MySQL {
		mark = "`"
	}
	for i, p := range parts {
		if !word.MatchString(p) {
			return "", fmt.Errorf("fence: the %s is %q; use letters, digits and underscores, at most 63, not a digit first", what, name)
		}
		parts[i] = mark + p + mark
	}
	return strings.Join(parts, "."), nil
}

// param is the placeholder of the n-th argument of a statement.
func (d Dialect) param(n int) string {
	if d == PostgreSQL {
		return "$" + strconv.Itoa(n)
	}
	return "?"
}
