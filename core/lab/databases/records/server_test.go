package records_test

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

	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/dbserver"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/idempotent/sqlrecords"
)

func TestMain(m *testing.M) {
	roles := child.Roles{senderRole: send}
	for _, p := range products {
		roles[p.buyerRole()] = p.buy
	}
	child.Main(roles)
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // the tests break connections on purpose
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "4") // the tests wait most of the time
	}
	goleak.VerifyTestMain(testservers.Main{M: m})
}

// product is a database server.
type product struct {
	*dbserver.Product
	dialect sqlrecords.Dialect
	text    string // an option of a data source: send statements as text, so that a proxy can read them
	other   string // an option that another process may have
	insert  string // an effect
	trips   int64  // of a first run, beside those of its transaction
}

var products = []*product{
	{
		Product: dbserver.PostgreSQL(), dialect: sqlrecords.PostgreSQL,
		text: "&default_query_exec_mode=simple_protocol", insert: `INSERT INTO effect (id, run) VALUES ($1, $2)`, trips: 2,
	},
	{
		Product: dbserver.MariaDB(), dialect: sqlrecords.MySQL,
		text: "?interpolateParams=true", other: "?clientFoundRows=true", insert: `INSERT INTO effect (id, run) VALUES (?, ?)`, trips: 3,
	},
}

// database is a new database with the table of records, and one of effects.
type database struct {
	*dbserver.Database
	*product
}

// onEach runs a test on every product, in parallel with other tests.
func onEach(t *testing.T, test func(t *testing.T, d *database)) {
	t.Parallel()
	for _, p := range products {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			d := &database{p.Make(t, p.Shared(t)), p}
			d.Must(t, `CREATE TABLE effect (id BIGINT NOT NULL, run BIGINT NOT NULL)`)
			for range 2 { // the second one finds the table
				if err := sqlrecords.Migrate(t.Context(), d.DB, p.dialect); err != nil {
					t.Fatal(err)
				}
			}
			test(t, d)
		})
	}
}

// store returns the records of the database, by way of db.
func (p *product) store(t testing.TB, db *sql.DB) *sqlrecords.Store {
	t.Helper()
	s, err := sqlrecords.New(db, p.dialect, "shop")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
