package fence

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

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
