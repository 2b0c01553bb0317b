package sqllock

import (
	"errors"
	"fmt"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/kit"
)

// silence is the error of an attempt that got no answer in time. It says so if statements have waited for a
// connection since the attempt began, when as many had waited, and there still is none.
func (s *session) silence(waited int64) error {
	e := &kit.SilenceError{Store: "sql", After: s.timeout}
	if p := s.db.Stats(); p.MaxOpenConnections > 0 && p.InUse >= p.MaxOpenConnections && p.WaitCount > waited {
		e.Last = fmt.Errorf("all %d connections of the *sql.DB are in use; give the locks a *sql.DB of their own, so that those who hold them leave one for renewals and releases", p.MaxOpenConnections)
	}
	return e
}

// classify wraps an error of database/sql. If retrying is useless it returns a
// *driver.PermanentError. All other errors are retried: deadlocks (40P01, 1213),
// serialization failures (40001, 1020), lock wait time-outs (55P03, 1205), broken
// connections, servers that start or stop, and unknown codes.
func classify(err error) error {
	if kit.Final(err) {
		return err
	}
	if why, ok := permanentCodes[code(err)]; ok {
		return &driver.PermanentError{Err: fmt.Errorf("sql: %s: %w", why, err)}
	}
	if err.Error() == "sql: database is closed" { // database/sql does not export it
		return &driver.PermanentError{Err: fmt.Errorf("sql: the *sql.DB is closed; close it after its sessions: %w", err)}
	}
	wrapped := fmt.Errorf("sql: %w", err)
	if code(err) != "" {
		return &driver.RefusedError{Err: wrapped}
	}
	return wrapped
}

// permanentCodes are the errors that a statement gets again until somebody changes the
// database or the user's rights.
var permanentCodes = map[string]string{
	// SQLSTATE, of PostgreSQL
	"42P01": "a table is missing, or not in the search_path; run Migrate, or the statements of Schema",
	"3F000": "the schema does not exist",
	"42703": "a column is missing; the tables are of another version",
	"42501": "the user has no right to it; grant SELECT, INSERT, UPDATE and DELETE on the three tables",
	"42601": "the server does not understand the statement; is the dialect right?",
	"42883": "the server lacks a function; PostgreSQL 11 or later is needed",
	"28000": "the user may not log in",
	"28P01": "the password is wrong",
	"3D000": "the database does not exist",
	// numbers, of MySQL
	"1146": "a table is missing; run Migrate, or the statements of Schema",
	"1054": "a column is missing; the tables are of another version",
	"1142": "the user has no right to it; grant SELECT, INSERT, UPDATE and DELETE on the three tables",
	"1143": "the user has no right to it; grant SELECT, INSERT, UPDATE and DELETE on the three tables",
	"1044": "the user has no right to the database",
	"1045": "the user may not log in",
	"1049": "the database does not exist",
	"1046": "the connection has chosen no database; name one in the data source",
	"1305": "the server lacks a function; is the dialect right?",
	"1064": "the server does not understand the statement; is the dialect right?",
	"1792": "the connection's transactions are read-only; set tx_read_only (transaction_read_only) off",
	"1665": "binlog_format is STATEMENT, which cannot log READ COMMITTED; set it to ROW",
}

// errTaken is the error of a lease that the server no longer has: it was ousted, or the
// server has lost it.
var errTaken = errors.New("sql: the lease was taken from its owner, or the server has lost it")
