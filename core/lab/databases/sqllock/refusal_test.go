package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/sqllock"
)

// refuse ends all connections of the database, and has the server refuse new ones until restore is
// called. MariaDB does so by having none left, for all databases.
func (d *database) refuse(t testing.TB) (cause string, restore func()) {
	t.Helper()
	admin, err := sql.Open(d.server.Driver, d.On.Source(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() })
	ctx := context.WithoutCancel(t.Context())
	first, err := admin.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	must := func(statement string) {
		t.Helper()
		if _, err := first.ExecContext(ctx, statement); err != nil {
			t.Errorf("%s: %v", statement, err)
		}
	}
	var name string
	if err := d.QueryRowContext(ctx, map[sqllock.Dialect]string{sqllock.PostgreSQL: `SELECT current_database()`, sqllock.MySQL: `SELECT database()`}[d.dialect]).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if d.dialect == sqllock.PostgreSQL {
		must(`ALTER DATABASE ` + name + ` ALLOW_CONNECTIONS false`)
		must(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '` + name + `'`)
		return "55000", func() { must(`ALTER DATABASE ` + name + ` ALLOW_CONNECTIONS true`); _ = first.Close() }
	}
	// More are open than there may be, so that none is free when one of another test ends.
	taken := make([]*sql.Conn, 20)
	for i := range taken {
		if taken[i], err = admin.Conn(ctx); err != nil {
			t.Fatal(err)
		}
	}
	must(`SET GLOBAL max_connections = 10`)
	for {
		var id int64
		if err := first.QueryRowContext(ctx, `SELECT coalesce(max(id), 0) FROM information_schema.processlist WHERE db = ?`, name).Scan(&id); err != nil {
			t.Fatal(err)
		}
		if id == 0 {
			break
		}
		_, _ = first.ExecContext(ctx, fmt.Sprintf(d.kill, id)) // it may have ended by itself
	}
	return "1040", func() {
		must(`SET GLOBAL max_connections = 200`)
		for _, c := range append(taken, first) {
			_ = c.Close()
		}
	}
}

func TestCallerIsToldWhatTheDatabaseAnswers(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		wrong, err := sql.Open(d.server.Driver, d.SourceAt("127.0.0.1:1"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = wrong.Close() }()
		readOnly, no := "&default_transaction_read_only=on", "25006"
		if d.dialect == sqllock.MySQL {
			readOnly, no = "?tx_read_only=1", "1792"
		}
		for what, tt := range map[string]struct {
			db   *sql.DB
			want string
		}{
			"an address where nobody listens": {wrong, "connection refused"},
			"a read-only server":              {d.Connect(t, d.On.Addr(), readOnly), no},
		} {
			e, err := core.New(d.locks(t, tt.db), core.WithStoreTimeout(3*time.Second), core.WithLogger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = e.Close() }() // it cannot clean up
			var calls sync.WaitGroup
			for _, wait := range []time.Duration{0, 2 * time.Second, 4 * time.Second} {
				calls.Go(func() {
					_, err := e.Acquire(t.Context(), core.Policy{Key: "k", Wait: wait})
					told := new(core.Error)
					switch {
					case !errors.As(err, &told) || !errors.Is(err, core.ErrUnavailable):
						t.Errorf("acquire on %s, wait %v: %v, want unavailable", what, wait, err)
					case told.Cause == nil || !strings.Contains(told.Cause.Error(), tt.want):
						t.Errorf("acquire on %s, wait %v: %v, because of %v, want %q", what, wait, err, told.Cause, tt.want)
					}
					if strings.Contains(fmt.Sprint(err), tt.want) {
						t.Errorf("acquire on %s: %v; the store's words are in the text, which clients may see", what, err)
					}
				})
			}
			calls.Wait()
		}
	})
}
