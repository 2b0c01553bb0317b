package sqllock_test

import (
	"database/sql"
	"flag"
	"io"
	"log"
	"runtime"
	"strconv"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/dbserver"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/sqllock"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) {
	roles := make(child.Roles)
	for _, p := range products {
		roles[p.crashRole()] = p.crashStore().Hold
	}
	child.Main(roles)
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // the tests break connections on purpose
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "4") // the tests wait most of the time
	}
	goleak.VerifyTestMain(testservers.Main{M: m})
}

// product is a database server, and its properties that matter to tests.
type product struct {
	server  *dbserver.Product
	dialect sqllock.Dialect
	// options of a data source: send statements as text, so that the proxy can read them, and
	// end a transaction after a second if its process is stopped in the middle of a decision.
	options string
	kill    string // ends another connection
	others  string // the other connections of a database
}

var products = []*product{
	{
		server: dbserver.PostgreSQL(), dialect: sqllock.PostgreSQL,
		options: "&default_query_exec_mode=simple_protocol",
		kill:    `SELECT pg_terminate_backend(%d)`,
		others:  `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
	},
	{
		server: dbserver.MariaDB(), dialect: sqllock.MySQL,
		options: "?interpolateParams=true&idle_transaction_timeout=1",
		kill:    `KILL %d`,
		others:  `SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()`,
	},
}

// onEachDatabase runs a test on every product, in parallel with other tests.
func onEachDatabase(t *testing.T, test func(t *testing.T, d *database)) {
	t.Parallel()
	for _, p := range products {
		t.Run(p.server.Name, func(t *testing.T) {
			t.Parallel()
			test(t, p.database(t, p.server.Shared(t)))
		})
	}
}

// database is a new database with sqllock's tables.
type database struct {
	*dbserver.Database
	*product
}

func (p *product) database(t testing.TB, on *testservers.Server) *database {
	t.Helper()
	d := &database{p.server.Make(t, on), p}
	if err := sqllock.Migrate(t.Context(), d.DB, d.dialect); err != nil {
		t.Fatal(err)
	}
	return d
}

// locks returns a driver for the database.
func (d *database) locks(t testing.TB, db *sql.DB, opts ...sqllock.Option) driver.Driver {
	t.Helper()
	locks, err := sqllock.New(db, d.dialect, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return locks
}

// eventually waits until something holds.
var eventually = testkit.Until
