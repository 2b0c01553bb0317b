package fence

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
)

// Column is a token column in a table of the user's own, for where a lock protects
// single rows: the token is checked and written by the statement that writes the row,
// so that there is no other row to lock, and no transaction is needed. It is safe for
// concurrent use; make it with [NewColumn].
//
// The column is declared
//
//	fence BIGINT NOT NULL DEFAULT 0
//
// and every statement that writes rows under the lock has the same two parts:
//
//	UPDATE stock SET units = units - 1, fence = ? WHERE sku = ? AND fence <= ?
//
// A row that a holder reads before it writes may be changed by a holder before it in
// between. Bar that one first, with a token and nothing else to set.
//
// A deleted row has forgotten its token. Where late writers may insert it again, mark
// rows as deleted, or use [SQL].
type Column struct {
	dialect          Dialect
	table, id, token string // quoted
	lookup           string

	schemaName, tableName, tokenName string      // as they were given; no schema is empty
	checked                          atomic.Bool // the column holds tokens as they are
}

// NewColumn describes the column token in the rows of a table, which may be written
// with the name of a schema before it. The column id has a unique index. It does not
// look at the database.
func NewColumn(d Dialect, table, id, token string) (*Column, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	c := &Column{dialect: d, tableName: table, tokenName: token}
	if schema, name, ok := strings.Cut(table, "."); ok {
		c.schemaName, c.tableName = schema, name
	}
	for _, name := range []struct {
		quoted     *string
		what, name string
		schema     bool
	}{
		{&c.table, "table", table, true},
		{&c.id, "id column", id, false},
		{&c.token, "token column", token, false},
	} {
		var err error
		if *name.quoted, err = d.quote(name.what, name.name, name.schema); err != nil {
			return nil, err
		}
	}
	// A locking read: MySQL's REPEATABLE READ would show the snapshot otherwise.
	c.lookup = "SELECT " + c.token + " FROM " + c.table + " WHERE " + c.id + " = " + d.param(1) + " FOR UPDATE"
	return c, nil
}

// Statement returns the statement that sets columns of the row of id if t is not
// stale, and its arguments. The text set is what stands after SET, such as
// "units = units - ?", and args are for its placeholders: ?, or in PostgreSQL $1 and so
// on. Empty, it writes the token alone. It is part of the statement: no input of a user
// belongs into it.
//
// A statement that has changed no row found a larger token or no row at all;
// [Column.Update] tells which.
func (c *Column) Statement(t Token, id any, set string, args ...any) (statement string, all []any) {
	if set != "" {
		set += ", "
	}
	n := len(args)
	token := c.dialect.param(n + 1)
	statement = "UPDATE " + c.table + " SET " + set + c.token + " = " + token +
		" WHERE " + c.id + " = " + c.dialect.param(n+2) + " AND " + c.token + " <= " + token
	all = append(append(make([]any, 0, n+3), args...), t.Number, id)
	if c.dialect == MySQL {
		all = append(all, t.Number)
	}
	return statement, all
}

// Check returns an error unless the token column is a BIGINT or an exact decimal. Tokens
// exceed 2^53: in a DOUBLE several of them are one number, and a smaller one is admitted. It
// asks the catalogue; a column that this does not show to the user is not refused.
// [Column.Update] does so once. Where [Column.Statement] is used, call it when the program
// starts.
func (c *Column) Check(ctx context.Context, db Execer) error {
	if c == nil || c.dialect == 0 {
		return errNoColumn
	}
	query := `SELECT a.atttypid::regtype::text FROM pg_catalog.pg_attribute a WHERE a.attrelid = to_regclass($1) AND a.attname = $2 AND NOT a.attisdropped`
	args := []any{c.table, c.tokenName}
	if c.dialect == MySQL {
		query = `SELECT data_type FROM information_schema.columns WHERE table_schema = COALESCE(NULLIF(?, ''), DATABASE()) AND table_name = ? AND column_name = ?`
		args = []any{c.schemaName, c.tableName, c.tokenName}
	}
	var kind string
	switch err := db.QueryRowContext(ctx, query, args...).Scan(&kind); {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return fmt.Errorf("fence: look at the token column: %w", err)
	case !slices.Contains([]string{"bigint", "numeric", "decimal"}, strings.ToLower(kind)):
		return fmt.Errorf("fence: the token column %s of %s is of type %s, which does not hold every token; declare it BIGINT NOT NULL DEFAULT 0", c.token, c.table, kind)
	}
	c.checked.Store(true)
	return nil
}

// Execer is a *sql.DB, *sql.Conn or *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Update executes [Column.Statement]. The error is around [ErrStale] if the row has a
// larger token, around [sql.ErrNoRows] if there is no such row, around [ErrMissing] or
// [ErrMalformed] if t is no token, or what the database said; then nothing is written
// or, where the database did not answer, perhaps. Get t from [For] with the key that
// locks this row: tokens of other keys do not compare.
//
// In a transaction the row stays locked until its end, so that further statements of
// the transaction on the same row need no token.
func (c *Column) Update(ctx context.Context, db Execer, t Token, id any, set string, args ...any) error {
	if c == nil || c.dialect == 0 {
		return errNoColumn
	}
	if err := t.Validate(); err != nil {
		return err
	}
	if !c.checked.Load() {
		if err := c.Check(ctx, db); err != nil {
			return err
		}
	}
	statement, all := c.Statement(t, id, set, args...)
	done, err := db.ExecContext(ctx, statement, all...)
	if err != nil {
		return fmt.Errorf("fence: write the row: %w", err)
	}
	switch n, err := done.RowsAffected(); {
	case err != nil:
		return fmt.Errorf("fence: write the row: %w", err)
	case n == 1:
		return nil
	case n > 1:
		return fmt.Errorf("fence: write the row: %d rows have the same id; the id column needs a unique index", n)
	}
	return c.why(ctx, db, t, id)
}

// why tells why a statement has changed no row.
func (c *Column) why(ctx context.Context, db Execer, t Token, id any) error {
	var found sql.NullInt64
	err := db.QueryRowContext(ctx, c.lookup, id).Scan(&found)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("fence: write the row: there is none with this id: %w", err)
	case err != nil:
		return fmt.Errorf("fence: read the row's token: %w", err)
	case !found.Valid:
		return errors.New("fence: write the row: its token is NULL; declare the column BIGINT NOT NULL DEFAULT 0")
	case found.Int64 > t.Number:
		return fmt.Errorf("fence: %w: a later holder of the lock has written the row; take the lock again", ErrStale)
	case found.Int64 == t.Number && c.dialect == MySQL:
		return nil // MySQL does not count a row that was like this before
	}
	return fmt.Errorf("fence: write the row: there was none with this id a moment ago: %w", sql.ErrNoRows)
}

var errNoColumn = errors.New("fence: there is no token column; describe one with fence.NewColumn")
