package sqllock

import (
	"fmt"
	"strconv"
	"strings"
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
		return fmt.Errorf("dialect %d is unknown; use sqllock.PostgreSQL or sqllock.MySQL", d)
	}
	return nil
}

// now is the server's time in microseconds since 1970, which knows no time zone and no
// summer time. PostgreSQL's runs on within a statement; MySQL's is that of the
// statement's start.
func (d Dialect) now() string {
	if d == PostgreSQL {
		return `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint`
	}
	return `TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))`
}

// sql writes a statement for the dialect: each ? becomes its placeholder, and each {now}
// its time.
func (d Dialect) sql(statement string) string {
	statement = strings.ReplaceAll(statement, "{now}", d.now())
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
