// Package dbserver has the databases of tests, in PostgreSQL and MariaDB servers. It needs no driver:
// the test's module has registered those that it opens.
package dbserver

import (
	"context"
	"database/sql"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/lockaround/lockaround/core/internal/servers"
	"github.com/lockaround/lockaround/core/testservers"
)

// Product is a product of database servers, of which the tests of a package share one.
type Product struct {
	*servers.Database
	start  func(testing.TB, ...string) *testservers.Server
	shared *testservers.Shared
	made   atomic.Int64
}

// PostgreSQL returns the product of that name. The package's TestMain ends by [testservers.Main].
func PostgreSQL() *Product { return product(servers.PostgreSQL, testservers.PostgreSQL) }

// MariaDB is like [PostgreSQL].
func MariaDB() *Product { return product(servers.MariaDB, testservers.MariaDB) }

func product(d *servers.Database, start func(testing.TB, ...string) *testservers.Server) *Product {
	return &Product{Database: d, start: start, shared: testservers.Share(start)}
}

// Shared returns the server that the tests of a package share.
func (p *Product) Shared(t testing.TB) *testservers.Server {
	t.Helper()
	return p.shared.For(t)
}

// Own starts a server for one test alone.
func (p *Product) Own(t testing.TB) *testservers.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	return p.start(t)
}

// Database is an empty database of a test, and a pool of connections to it.
type Database struct {
	*sql.DB
	On   *testservers.Server
	of   *Product
	name string
}

// Make creates an empty database in a server.
func (p *Product) Make(t testing.TB, on *testservers.Server) *Database {
	t.Helper()
	d := &Database{On: on, of: p, name: fmt.Sprint("test", p.made.Add(1))}
	if _, err := p.Database.Make(t.Context(), on.Addr(), d.name); err != nil {
		t.Fatal(err)
	}
	d.DB = d.Connect(t, on.Addr(), "")
	return d
}

// At is the host, the port and the name of the database.
func (d *Database) At() string { return d.On.Addr() + "/" + d.name }

// SourceAt is the data source of the database, by way of an address that may be a proxy's.
func (d *Database) SourceAt(addr string) string { return d.of.Source(addr, d.name) }

// Connect returns another pool of connections, by way of an address, with options that stand
// behind a data source. It is closed when the test ends.
func (d *Database) Connect(t testing.TB, addr, options string) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.of.Driver, d.SourceAt(addr)+options)
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
