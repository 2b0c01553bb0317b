// Package sqltext has what stores in PostgreSQL and MySQL share: how a statement is written for either, and what
// an error of theirs is called.
package sqltext

import (
	"errors"
	"reflect"
	"strconv"
	"strings"
)

// Translate makes of a statement one for PostgreSQL, or for MySQL: it replaces each ? by a placeholder, and each
// {now} by the server's time in microseconds since 1970, which depends on no time zone.
// PostgreSQL's clock_timestamp advances within a transaction; MySQL's time is that at which
// the statement started.
func Translate(statement string, postgres bool) string {
	if !postgres {
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

// Code returns an error's SQLSTATE in PostgreSQL, its number in MySQL, or "". Drivers for
// PostgreSQL have a method for it, and the one for MySQL has a field.
func Code(err error) string {
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
