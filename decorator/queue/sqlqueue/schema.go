package sqlqueue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

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
