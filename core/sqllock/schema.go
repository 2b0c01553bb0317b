package sqllock

import (
	"context"
	"database/sql"
	"fmt"
)

// MaxKeyLength is how many bytes a key may have: the tables' indexes hold no more.
const MaxKeyLength = 2000

// The columns whose names end in _us hold microseconds: since 1970 by the server's
// clock, or of a length. A claim's state is one of board.go's. The row of the empty key
// holds, in floor_token, what no later token may fall below; see sweep.go.
var schemas = map[Dialect][]string{
	PostgreSQL: {
		`CREATE TABLE IF NOT EXISTS lockaround_lock (
    lock_key    bytea  NOT NULL PRIMARY KEY,
    token       bigint NOT NULL DEFAULT 0,
    floor_token bigint NOT NULL DEFAULT 0,
    ousted      bigint NOT NULL DEFAULT 0,
    asked_us    bigint NOT NULL DEFAULT 0,
    keep_us     bigint NOT NULL DEFAULT 0,
    ended       bytea  NOT NULL DEFAULT ''
) WITH (fillfactor = 70)`,
		`CREATE INDEX IF NOT EXISTS lockaround_lock_keep ON lockaround_lock (keep_us)`,
		`CREATE TABLE IF NOT EXISTS lockaround_claim (
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
    PRIMARY KEY (lock_key, owner)
) WITH (fillfactor = 70)`,
		`CREATE INDEX IF NOT EXISTS lockaround_claim_session ON lockaround_claim (session)`,
		`CREATE TABLE IF NOT EXISTS lockaround_row (
    lock_key   bytea  NOT NULL PRIMARY KEY,
    created_us bigint NOT NULL
)`,
		`CREATE INDEX IF NOT EXISTS lockaround_row_created ON lockaround_row (created_us)`,
	},
	MySQL: {
		`CREATE TABLE IF NOT EXISTS lockaround_lock (
    lock_key    VARBINARY(2000) NOT NULL PRIMARY KEY,
    token       BIGINT NOT NULL DEFAULT 0,
    floor_token BIGINT NOT NULL DEFAULT 0,
    ousted      BIGINT NOT NULL DEFAULT 0,
    asked_us    BIGINT NOT NULL DEFAULT 0,
    keep_us     BIGINT NOT NULL DEFAULT 0,
    ended       VARBINARY(255) NOT NULL DEFAULT '',
    KEY lockaround_lock_keep (keep_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
		`CREATE TABLE IF NOT EXISTS lockaround_claim (
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
    PRIMARY KEY (lock_key, owner),
    KEY lockaround_claim_session (session)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
		`CREATE TABLE IF NOT EXISTS lockaround_row (
    lock_key   VARBINARY(2000) NOT NULL PRIMARY KEY,
    created_us BIGINT NOT NULL,
    KEY lockaround_row_created (created_us)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`,
	},
}

// Schema returns the statements that create the tables unless they are there, in their
// order and without semicolons: for those who run their own migrations. It is nil for an
// unknown dialect.
func Schema(d Dialect) []string { return append([]string(nil), schemas[d]...) }

// Migrate creates the tables unless they are there, in the database and schema that the
// connections of db begin in. Any number of processes may do so at once. Whoever takes
// locks needs no right to create tables: SELECT, INSERT, UPDATE and DELETE suffice.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	if err := usable(db, d); err != nil {
		return fmt.Errorf("sqllock: create the tables: %w", err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("sqllock: create the tables: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if d == PostgreSQL {
		// Two that create a table at once get into each other's way in the catalogue.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext('lockaround'))`); err != nil {
			return fmt.Errorf("sqllock: create the tables: %w", err)
		}
	}
	for _, statement := range schemas[d] {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("sqllock: create the tables: %w", err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("sqllock: create the tables: %w", err)
	}
	return nil
}
