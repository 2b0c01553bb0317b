package dbserver

import (
	"context"
	"database/sql"
	"testing"
)

// Database is an empty database of a test, and a pool of connections to it.
type Database struct {
	*sql.DB
	On   *Server
	name string
}

// Database starts the server if need be, as Start does, and creates a database in it.
func (s *Server) Database(t testing.TB) *Database {
	t.Helper()
	d := &Database{On: s, name: s.Create(t)}
	d.DB = d.Connect(t, s.Addr(), "")
	return d
}

// SourceAt is the data source of the database, by way of an address that may be a proxy's.
func (d *Database) SourceAt(addr string) string { return d.On.Source(addr, d.name) }

// Connect returns another pool of connections, by way of an address, with options that stand
// behind a data source. It is closed when the test ends.
func (d *Database) Connect(t testing.TB, addr, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.On.Driver, d.SourceAt(addr)+options)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(20)
	db.SetMaxIdleConns(20)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// Must executes statements that have to succeed.
func (d *Database) Must(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := d.ExecContext(context.WithoutCancel(t.Context()), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// Number returns the result of a query for one number.
func (d *Database) Number(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.QueryRowContext(context.WithoutCancel(t.Context()), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
