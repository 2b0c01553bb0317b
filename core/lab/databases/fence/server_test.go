package fence_test

import (
	"testing"

	_ "github.com/go-sql-driver/mysql" // the driver mysql
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/dbserver"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) {
	child.Main(child.Roles{role: hold})
	goleak.VerifyTestMain(testservers.Main{M: m})
}

// server is a database server with the dialect that it understands.
type server struct {
	*dbserver.Product
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
	*dbserver.Database
	name    string // of the product
	dialect fence.Dialect
	fence   *fence.SQL
}

// database skips the test if there is no server on this machine, or fails it if the
// environment says LOCKAROUND_REQUIRE_SERVERS=1.
func (s *server) database(t testing.TB) *database {
	t.Helper()
	d := &database{Database: s.Make(t, s.Shared(t)), name: s.Name, dialect: s.dialect}
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
func (d *database) source() string { return d.SourceAt(d.On.Addr()) }
