package sqlrecords

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/lockaround/lockaround/decorator/internal/sqltext"
)

// Dialect is the SQL that a database understands. The zero value is none.
type Dialect uint8

// The dialects.
const (
	PostgreSQL Dialect = iota + 1 // 11 or later
	MySQL                         // 8.0 or later, and MariaDB 10.6 or later
)

// schemas have, in columns whose names end in _us, microseconds since 1970 by the server's clock. Those of stage are
// in store.go. The index of PostgreSQL is a constraint, so that the table and its index are one
// statement, which locks nothing if the table exists.
var schemas = map[Dialect]string{
	PostgreSQL: `CREATE TABLE IF NOT EXISTS lockaround_record (
    digest      bytea    NOT NULL PRIMARY KEY,
    run         bytea    NOT NULL,
    stage       smallint NOT NULL,
    token       bigint   NOT NULL,
    fingerprint bytea    NOT NULL,
    alone_us    bigint   NOT NULL,
    ends_us     bigint   NOT NULL,
    answer      bytea    NOT NULL,
    UNIQUE (ends_us, digest)
)`,
	MySQL: `CREATE TABLE IF NOT EXISTS lockaround_record (
    digest      BINARY(32) NOT NULL PRIMARY KEY,
    run         BINARY(16) NOT NULL,
    stage       TINYINT    NOT NULL,
    token       BIGINT     NOT NULL,
    fingerprint BINARY(32) NOT NULL,
    alone_us    BIGINT     NOT NULL,
    ends_us     BIGINT     NOT NULL,
    answer      LONGBLOB   NOT NULL,
    INDEX (ends_us)
) ENGINE = InnoDB`,
}

// Schema returns the statement that creates the table unless it exists, without a semicolon. It is for users with
// migrations of their own. It returns "" for an unknown dialect.
func Schema(d Dialect) string { return schemas[d] }

// Migrate creates the table unless it exists, in the database and schema that the connections of db
// start in. Several processes may call it at once, also while others use the records. It needs the right to create
// tables, which a process that uses records does not: SELECT, INSERT, UPDATE and DELETE are enough for
// that.
func Migrate(ctx context.Context, db *sql.DB, d Dialect) error {
	if err := usable(db, d); err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return failure("create the table", err)
	}
	defer func() { _ = tx.Rollback() }() // after the Commit it does nothing
	if d == PostgreSQL {
		// Transactions that create the same table at once fail with errors of the catalogue.
		if _, err := tx.ExecContext(ctx, `SELECT pg_advisory_xact_lock(hashtext('lockaround'))`); err != nil {
			return failure("create the table", err)
		}
	}
	if _, err = tx.ExecContext(ctx, schemas[d]); err == nil {
		err = tx.Commit()
	}
	return failure("create the table", err)
}

func usable(db *sql.DB, d Dialect) error {
	switch {
	case db == nil:
		return errors.New("sqlrecords: the *sql.DB is nil; pass one made by sql.Open")
	case schemas[d] == "":
		return fmt.Errorf("sqlrecords: dialect %d is unknown; use sqlrecords.PostgreSQL or sqlrecords.MySQL", d)
	}
	return nil
}

// failure says what was being done when the database failed; nil stays nil.
func failure(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("sqlrecords: %s: %w", doing, err)
}

// sql translates a statement into the dialect.
func (d Dialect) sql(statement string) string { return sqltext.Translate(statement, d == PostgreSQL) }

// victims are the codes of statements that the database has given up for others' sake, and that have done nothing.
var victims = []string{"40001", "40P01", "1213", "1020"}

// isVictim reports whether err is one of a [victims].
func isVictim(err error) bool { return slices.Contains(victims, sqltext.Code(err)) }
