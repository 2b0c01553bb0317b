// Package pgtest has a PostgreSQL server for the tests of adapters, and those that all of them pass that
// put a transaction inside of a lock.
package pgtest

import (
	"database/sql"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx

	"github.com/lockaround/lockaround/core/testservers"
)

var (
	server = testservers.Share(testservers.PostgreSQL)
	names  atomic.Int64
)

// Main runs a package's tests, and then ends the server that they have started.
func Main(m *testing.M) { os.Exit(testservers.Main{M: m}.Run()) }

// URL creates an empty database and returns its address. Without a PostgreSQL the test is
// skipped, or fails if the environment says LOCKAROUND_REQUIRE_SERVERS=1.
func URL(t *testing.T) string {
	t.Helper()
	s := server.For(t)
	root, err := sql.Open("pgx", s.Source(""))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close() //nolint:errcheck // what was sent has been answered
	name := fmt.Sprint("test", names.Add(1))
	if _, err := root.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	return s.Source(name)
}
