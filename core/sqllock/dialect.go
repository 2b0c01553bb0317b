package sqllock

import (
	"database/sql"
	"encoding/hex"
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

func usable(db *sql.DB, d Dialect) error {
	if db == nil {
		return errors.New("the *sql.DB is nil; pass one made by sql.Open")
	}
	return d.check()
}

func (d Dialect) check() error {
	if d != PostgreSQL && d != MySQL {
		return fmt.Errorf("dialect %d is unknown; use sqllock.PostgreSQL or sqllock.MySQL", d)
	}
	return nil
}

// words translates what statements have in braces: {now} is the server's time; {alone} is the
// condition that a statement is a transaction of its own, see alone.go; and {all} stands at the end of
// a query, whatever sql_select_limit is.
func (d Dialect) words(statement string) string {
	alone, all := aloneSQL, " LIMIT 9223372036854775807"
	if d == PostgreSQL {
		alone, all = "TRUE", ""
	}
	return strings.NewReplacer("{now}", d.now(), "{alone}", alone, "{all}", all).Replace(statement)
}

// sql translates a statement into the dialect: its words, and each ? by a placeholder.
func (d Dialect) sql(statement string) string {
	statement = d.words(statement)
	if d != PostgreSQL {
		return statement
	}
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

// bind returns a statement and the parameters to send with it. In MySQL they become part of its
// text, where they cost no round trip to prepare the statement. PostgreSQL plans it only once.
func (d Dialect) bind(statement string, values ...any) (string, []any) {
	if d == PostgreSQL {
		return statement, values
	}
	return d.text(statement, values...), nil
}

// text translates the words of a statement, and replaces each ? by a value.
func (d Dialect) text(statement string, values ...any) string {
	statement = d.words(statement)
	var b strings.Builder
	for _, v := range values {
		before, after, _ := strings.Cut(statement, "?")
		b.WriteString(before)
		b.WriteString(d.literal(v))
		statement = after
	}
	b.WriteString(statement)
	return b.String()
}

// literal returns a value as it is in a statement's text: an integer; bytes, of which only the
// hexadecimal digits are in it, so that nothing in them means anything to the server; or a string
// of this package's own, of letters and digits.
func (d Dialect) literal(v any) string {
	switch v := v.(type) {
	case []byte:
		if d == PostgreSQL {
			return "decode('" + hex.EncodeToString(v) + "', 'hex')"
		}
		return "x'" + hex.EncodeToString(v) + "'"
	case int64:
		return strconv.FormatInt(v, 10)
	case int:
		return strconv.Itoa(v)
	case string:
		return "'" + strings.ReplaceAll(v, "'", "''") + "'"
	}
	panic(fmt.Sprintf("sqllock: no literal for a %T", v))
}

// now returns the SQL for the server's time in microseconds since 1970, which does not
// depend on a time zone. PostgreSQL's clock_timestamp advances within a statement; MySQL's
// is the time at which the statement started.
func (d Dialect) now() string {
	if d == PostgreSQL {
		return `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	}
	return `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`
}

// code returns an error's SQLSTATE in PostgreSQL, its number in MySQL, or "". database/sql
// has no common way to get them: drivers for PostgreSQL have a method, and the one for MySQL
// has a field.
func code(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	for err != nil {
		v := reflect.ValueOf(err)
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			v = v.Elem()
		}
		if v.Kind() == reflect.Struct {
			if n := v.FieldByName("Number"); n.IsValid() && n.Kind() == reflect.Uint16 {
				return strconv.FormatUint(n.Uint(), 10)
			}
		}
		err = errors.Unwrap(err)
	}
	return ""
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
