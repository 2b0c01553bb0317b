package queues_test

import (
	"bytes"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"log"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/internal/dbserver"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/queue"
	"github.com/lockaround/lockaround/decorator/queue/sqlqueue"
)

func TestMain(m *testing.M) {
	roles := make(child.Roles)
	for _, p := range products {
		roles[p.workerRole()] = p.work
		roles[p.historyRole()] = p.writeHistory
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
	*dbserver.Product
	dialect sqlqueue.Dialect
	fences  fence.Dialect
	text    string // options of a data source: send statements as text, so that the proxy can read them
	idle    string // and end a transaction that sends nothing for a while of %d seconds, unless the store asks for that
	other   string // options that another process may have
	kill    string // ends another connection
	others  string // the other connections of a database
}

var products = []*product{
	{
		Product: dbserver.PostgreSQL(), dialect: sqlqueue.PostgreSQL, fences: fence.PostgreSQL,
		text:   "&default_query_exec_mode=simple_protocol",
		kill:   `SELECT pg_terminate_backend(%d)`,
		others: `SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
	},
	{
		Product: dbserver.MariaDB(), dialect: sqlqueue.MySQL, fences: fence.MySQL,
		other:  "?clientFoundRows=true",
		text:   "?interpolateParams=true",
		idle:   "&idle_transaction_timeout=%d",
		kill:   `KILL %d`,
		others: `SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()`,
	},
}

// onEach runs a test on every product, in parallel with other tests.
func onEach(t *testing.T, test func(t *testing.T, d *database)) {
	t.Parallel()
	for _, p := range products {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			test(t, p.database(t, p.Shared(t)))
		})
	}
}

// database is a new database with the tables of queues.
type database struct {
	*dbserver.Database
	*product
}

func (p *product) database(t testing.TB, on *testservers.Server) *database {
	t.Helper()
	d := &database{p.Make(t, on), p}
	if err := sqlqueue.Migrate(t.Context(), d.DB, p.dialect); err != nil {
		t.Fatal(err)
	}
	return d
}

// textAndIdle returns options by which an idle transaction ends after some seconds, as the store asks for
// by itself where it can.
func (p *product) textAndIdle(seconds int) string {
	if p.idle == "" {
		return p.text
	}
	return p.text + fmt.Sprintf(p.idle, seconds)
}

// store returns the queues of the database, by way of db.
func (d *database) store(t testing.TB, db *sql.DB, opts ...sqlqueue.Option) *sqlqueue.Store {
	t.Helper()
	s, err := sqlqueue.New(db, d.dialect, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var plainRules = queue.Rules{Attempts: 5, MaxLength: 100, KeepFor: time.Hour, KeepCount: 1000}

// open returns a queue of the database.
func (d *database) open(t testing.TB, s *sqlqueue.Store, r queue.Rules) queue.TxAppender {
	t.Helper()
	q, err := s.Open("refund", r)
	if err != nil {
		t.Fatal(err)
	}
	return q.(queue.TxAppender)
}

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

var eventually = testkit.Until

// newProxy starts a proxy to the server at target, whose requests are the COMMITs. It counts
// "selects", and the other "requests".
func newProxy(t testing.TB, target string) *proxy.Proxy[string] {
	t.Helper()
	return newProxyThatTells(t, target, func([]byte) {})
}

// newProxyThatTells also calls sent with what clients send, before it is passed on.
func newProxyThatTells(t testing.TB, target string, sent func(data []byte)) *proxy.Proxy[string] {
	t.Helper()
	return proxy.Start(t, target, proxy.Options[string]{Codec: func() proxy.Codec[string] { return &codec{sent: sent} }})
}

// codec reads one connection. Statements must be sent as text.
type codec struct {
	proxy.Chunks
	sent func(data []byte)
}

// Read reads what there is.
func (c *codec) Read(d proxy.Direction, from io.Reader) ([]byte, error) {
	data, err := c.Chunks.Read(d, from)
	if d == proxy.ToServer {
		c.sent(data)
	}
	return data, err
}

func (c *codec) See(d proxy.Direction, data []byte) (m proxy.Message[string]) {
	if d == proxy.ToClient {
		m.Reply = true
		return m
	}
	m.Count = "requests"
	if bytes.Contains(data, []byte("SELECT")) {
		m.Count = "selects"
	}
	if bytes.Contains(bytes.ToLower(data), []byte("commit")) {
		m.Requests = []string{"commit"}
	}
	return m
}
