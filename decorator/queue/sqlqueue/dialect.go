package sqlqueue

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

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

// sql translates a statement into the dialect: it replaces each ? by a placeholder, and each
// {now} by the server's time in microseconds since 1970, which depends on no time zone.
// PostgreSQL's clock_timestamp advances within a transaction; MySQL's time is that at which
// the statement started.
func (d Dialect) sql(statement string) string {
	if d != PostgreSQL {
		return strings.ReplaceAll(statement, "{now}", `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`)
	}
	statement = strings.ReplaceAll(statement, "{now}", `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`)
	var b strings.Builder
	n := 0
	for _, r := range statement {
		if r == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// code returns an error's SQLSTATE in PostgreSQL, its number in MySQL, or "". Drivers for
// PostgreSQL have a method for it, and the one for MySQL has a field.
func code(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	for ; err != nil; err = errors.Unwrap(err) {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() == reflect.Struct {
			if n := v.FieldByName("Number"); n.IsValid() && n.Kind() == reflect.Uint16 {
				return strconv.FormatUint(n.Uint(), 10)
			}
		}
	}
	return ""
}

// rolledBack reports whether the database has rolled a transaction back because of others, so
// that the same one may succeed when it is repeated.
func rolledBack(err error) bool {
	switch code(err) {
	case "40001", "40P01", "55P03", "25P03", // PostgreSQL: serialization, deadlock, lock time-out, idle in the transaction
		"1213", "1205", "1020": // MySQL: deadlock, lock time-out, a row that has changed
		return true
	}
	return false
}

// failure says what was being done when the database failed.
func failure(doing string, err error) error {
	switch code(err) {
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
