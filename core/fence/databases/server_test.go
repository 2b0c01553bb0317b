package databases_test

import (
	"context"
	"database/sql"
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/dbserver"
)

func TestMain(m *testing.M) {
	child.Main(child.Roles{role: hold})
	goleak.VerifyTestMain(dbserver.Main{M: m, Servers: []*dbserver.Server{postgres.Server, mariadb.Server}})
}

// server is a database server with the dialect that it understands.
type server struct {
	*dbserver.Server
	dialect fence.Dialect
}

var (
	postgres = &server{dbserver.PostgreSQL(), fence.PostgreSQL}
	mariadb  = &server{dbserver.MariaDB(), fence.MySQL}
	servers  = []*server{postgres, mariadb}
)

// each runs a test on every database.
func each(t *testing.T, test func(t *testing.T, d *database)) {
	for _, s := range servers {
		t.Run(s.Name, func(t *testing.T) { test(t, s.database(t)) })
	}
}

// database is an empty database with a fence table.
type database struct {
	*sql.DB
	*server
	name  string
	fence *fence.SQL
}

// database skips the test if there is no server on this machine, or fails it if the
// environment says LOCKAROUND_REQUIRE_SERVERS=1.
func (s *server) database(t testing.TB) *database {
	t.Helper()
	d := &database{server: s, name: s.Create(t)}
	d.DB = d.connect(t)
	var err error
	if d.fence, err = fence.NewSQL(s.dialect, ""); err != nil {
		t.Fatal(err)
	}
	if err := d.fence.Migrate(t.Context(), d.DB); err != nil {
		t.Fatal(err)
	}
	return d
}

// source is the database's data source.
func (d *database) source() string { return d.Source(d.Addr(), d.name) }

// connect returns another pool of connections, as another process would have.
func (d *database) connect(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.server.Driver, d.source())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// exec executes statements that must succeed.
func (d *database) exec(t testing.TB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := d.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// number is the result of a query for one number.
func (d *database) number(t testing.TB, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.QueryRowContext(context.WithoutCancel(t.Context()), query, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}
