package sqllock

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// MaxKeyLength is how many bytes a key may have, which is limited by the tables' indexes.
const MaxKeyLength = 2000

// Schema returns the statements that create the tables unless they exist, in order and
// without semicolons. It is for users with migrations of their own. It returns nil for an
// unknown dialect.
//
// Tables of earlier releases have no column origin. Until they get it, Inspect does not name
// holders. The statements for PostgreSQL add it, and for MySQL this does:
//
//	ALTER TABLE lockaround_claim ADD COLUMN origin VARBINARY(128) NOT NULL DEFAULT ''
func Schema(d Dialect) (statements []string) {
	for _, o := range schemas[d] {
		if d == PostgreSQL || !o.isColumn() { // MySQL cannot add a column unless it exists
			statements = append(statements, o.create)
		}
	}
	return statements
}

// Migrate creates the tables unless they exist, and the column that those of earlier releases
// do not have, in the database and schema that the connections of db start in. Several
// processes may call it at once, also while others take locks: if nothing is missing it only
// reads the catalogue. A process that takes locks needs no right to create tables: SELECT,
// INSERT, UPDATE and DELETE are enough.
//
// In PostgreSQL a missing index or column of a table in use is created when no transaction
// blocks it, and so is a column in MySQL. Migrate tries that for a tenth of a second at a time,
// in MySQL for a second, until ctx ends.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	if err := usable(db, d); err != nil {
		return fmt.Errorf("sqllock: create the tables: %w", err)
	}
	var last *object
	for pause := firstMigratePause; ; pause = min(2*pause, time.Second) {
		made, err := migrate(ctx, db, d)
		switch {
		case err == nil && made == nil:
			return nil
		case err == nil && made == last:
			return fmt.Errorf("sqllock: create the tables: %s was created, and is not in the catalogue", made.name)
		case err == nil:
			last, pause = made, firstMigratePause
			continue
		case code(err) != lockNotAvailable && code(err) != lockWaitTimeout:
			return fmt.Errorf("sqllock: create the tables: %w", err)
		}
		if !kit.Sleep(ctx, pause) {
			return fmt.Errorf("sqllock: create the tables: other transactions were in the way: %w", errors.Join(ctx.Err(), err))
		}
	}
}

const (
	firstMigratePause = 100 * time.Millisecond
	lockNotAvailable  = "55P03"
	lockWaitTimeout   = "1205"
	duplicateColumn   = "1060"
)

// migrate creates the first object that is missing, and returns it; nil if none is missing.
// Creating an object locks its table, and other statements queue behind that lock. So each
// object has a transaction of its own, which waits for one lock only, and not for long.
func migrate(ctx context.Context, db *sql.DB, d Dialect) (made *object, err error) {
	if o, err := missing(ctx, db, d); err != nil || o == nil {
		return nil, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if d == PostgreSQL {
		// Transactions that create the same table at once fail with errors of the catalogue.
		for _, statement := range []string{`SET LOCAL lock_timeout = 100`, `SELECT pg_advisory_xact_lock(hashtext('lockaround'))`} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return nil, err
			}
		}
	}
	o, err := missing(ctx, tx, d)
	if err != nil || o == nil {
		return nil, err
	}
	if d == MySQL && o.isColumn() {
		if _, err := tx.ExecContext(ctx, `SET SESSION lock_wait_timeout = 1`); err != nil {
			return nil, err
		}
	}
	_, err = tx.ExecContext(ctx, o.create)
	if d == MySQL && o.isColumn() {
		_, _ = tx.ExecContext(context.WithoutCancel(ctx), `SET SESSION lock_wait_timeout = DEFAULT`) // the connection goes back to its pool
	}
	if err != nil && code(err) != duplicateColumn { // another process was faster
		return nil, err
	}
	return o, tx.Commit()
}

// missing returns the first object that does not exist, or nil.
func missing(ctx context.Context, from interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, d Dialect,
) (*object, error) {
	names := `SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE 'lockaround%'
UNION ALL SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'lockaround_claim' LIMIT 1000`
	if d == PostgreSQL {
		names = `SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relname LIKE 'lockaround%'
UNION ALL SELECT c.relname || '.' || a.attname FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = current_schema() AND c.relname = 'lockaround_claim' AND a.attnum > 0 AND NOT a.attisdropped`
	}
	there := make(map[string]bool)
	rows, err := from.QueryContext(ctx, names)
	err = scanAll(rows, err, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		there[name] = true
		return err
	})
	for i, o := range schemas[d] {
		if !there[o.name] {
			return &schemas[d][i], err
		}
	}
	return nil, err
}

// object is a table, an index, or a column that was added to a table, and the statement that
// creates it.
type object struct{ name, create string }

// isColumn reports whether the object is a column: its name has its table's before a dot.
func (o *object) isColumn() bool { return strings.Contains(o.name, ".") }

// Columns whose names end in _us have microseconds: a time since 1970 by the server's clock,
// or a duration. A claim whose expires_us is 0 is spent: it was released, and is nobody's; see
// acquire.go. state is a claimState; turn is the position in the queue; room is how many
// may hold the key together; the function origin has that column. The row of the empty key has the floor, a token that all later
// tokens must exceed; see sweep.go.
var schemas = map[Dialect][]object{
	PostgreSQL: {
		{"lockaround_lock", `CREATE TABLE IF NOT EXISTS lockaround_lock (
    lock_key    bytea  NOT NULL PRIMARY KEY,
    token       bigint NOT NULL DEFAULT 0,
    floor_token bigint NOT NULL DEFAULT 0,
    ousted      bigint NOT NULL DEFAULT 0,
    asked_us    bigint NOT NULL DEFAULT 0,
    keep_us     bigint NOT NULL DEFAULT 0,
    ended       bytea  NOT NULL DEFAULT ''
) WITH (fillfactor = 70)`},
		{"lockaround_lock_keep", `CREATE INDEX IF NOT EXISTS lockaround_lock_keep ON lockaround_lock (keep_us)`},
		{"lockaround_claim", `CREATE TABLE IF NOT EXISTS lockaround_claim (
    lock_key   bytea    NOT NULL,
    owner      bytea    NOT NULL,
    state      smallint NOT NULL,
    turn       bigint   NOT NULL,
    room       integer  NOT NULL,
    token      bigint   NOT NULL,
    granted_us bigint   NOT NULL,
    expires_us bigint   NOT NULL,
    ttl_us     bigint   NOT NULL,
    session    bytea    NOT NULL,
    listens    smallint NOT NULL,
    origin     bytea    NOT NULL DEFAULT '',
    PRIMARY KEY (lock_key, owner)
) WITH (fillfactor = 70)`},
		{"lockaround_claim.origin", `ALTER TABLE lockaround_claim ADD COLUMN IF NOT EXISTS origin bytea NOT NULL DEFAULT ''`},
		{"lockaround_claim_session", `CREATE INDEX IF NOT EXISTS lockaround_claim_session ON lockaround_claim (session)`},
		{"lockaround_row", `CREATE TABLE IF NOT EXISTS lockaround_row (
    lock_key   bytea  NOT NULL PRIMARY KEY,
    created_us bigint NOT NULL
)`},
		{"lockaround_row_created", `CREATE INDEX IF NOT EXISTS lockaround_row_created ON lockaround_row (created_us)`},
	},
	MySQL: {
		{"lockaround_lock", `CREATE TABLE IF NOT EXISTS lockaround_lock (
    lock_key    VARBINARY(2000) NOT NULL PRIMARY KEY,
    token       BIGINT NOT NULL DEFAULT 0,
    floor_token BIGINT NOT NULL DEFAULT 0,
    ousted      BIGINT NOT NULL DEFAULT 0,
    asked_us    BIGINT NOT NULL DEFAULT 0,
    keep_us     BIGINT NOT NULL DEFAULT 0,
    ended       VARBINARY(255) NOT NULL DEFAULT '',
    KEY lockaround_lock_keep (keep_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`},
		{"lockaround_claim", `CREATE TABLE IF NOT EXISTS lockaround_claim (
    lock_key   VARBINARY(2000) NOT NULL,
    owner      BINARY(16) NOT NULL,
    state      SMALLINT NOT NULL,
    turn       BIGINT NOT NULL,
    room       INT NOT NULL,
    token      BIGINT NOT NULL,
    granted_us BIGINT NOT NULL,
    expires_us BIGINT NOT NULL,
    ttl_us     BIGINT NOT NULL,
    session    BINARY(16) NOT NULL,
    listens    SMALLINT NOT NULL,
    origin     VARBINARY(128) NOT NULL DEFAULT '',
    PRIMARY KEY (lock_key, owner),
    KEY lockaround_claim_session (session)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`},
		{"lockaround_claim.origin", `ALTER TABLE lockaround_claim ADD COLUMN origin VARBINARY(128) NOT NULL DEFAULT ''`},
		{"lockaround_row", `CREATE TABLE IF NOT EXISTS lockaround_row (
    lock_key   VARBINARY(2000) NOT NULL PRIMARY KEY,
    created_us BIGINT NOT NULL,
    KEY lockaround_row_created (created_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`},
	},
}

// The column origin of a claim says where it comes from: the identity of its session and, after
// a zero byte, the trace of its request. Tables of earlier releases do not have the column until
// Migrate is called, and sessions do without it.

// origin returns what the column holds. It is not nil, which would be NULL.
func origin(from driver.Origin) []byte {
	b := append([]byte{}, from.Identity...)
	if from.Trace != nil {
		b = from.Trace.Append(append(b, 0))
	}
	return b
}

// originOf reads the column.
func originOf(column []byte) driver.Origin {
	identity, trace, _ := bytes.Cut(column, []byte{0})
	return driver.Origin{Identity: string(identity), Trace: driver.ParseTrace(string(trace))}
}

// taker returns where one of the leases comes from.
func (k *keyState) taker() driver.Origin {
	for i := range k.claims {
		if c := &k.claims[i]; c.state == holds {
			return c.from
		}
	}
	return driver.Origin{}
}

// tables knows whether the tables have the column.
type tables struct {
	q, unnamed *queries     // with the column, and without it
	old        atomic.Int64 // they have not got it, at least until then; in nanoseconds since 1970
}

// recheck is how long a session does without the column before it looks for it again.
const recheck = time.Minute

func (t *tables) init(c config) { t.q, t.unnamed = c.q, newQueries(c.d, false) }

// queries returns those for the tables as they were last seen.
func (t *tables) queries() *queries {
	if time.Now().UnixNano() < t.old.Load() {
		return t.unnamed
	}
	return t.q
}

// run calls f, and once more if the tables turn out not to have the column. f has changed
// nothing then: it begins by reading claims.
func (t *tables) run(f func(*queries) error) error {
	q := t.queries()
	err := f(q)
	if c := code(err); q == t.q && (c == "42703" || c == "1054") {
		t.old.Store(time.Now().Add(recheck).UnixNano())
		return f(t.unnamed)
	}
	return err
}
