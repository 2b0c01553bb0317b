package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/sqllock"
)

// levels are options of a data source, each with a default isolation level for its connections.
var levels = map[sqllock.Dialect][]string{
	sqllock.PostgreSQL: {"", "&default_transaction_isolation=repeatable%20read", "&default_transaction_isolation=serializable"},
	sqllock.MySQL: {
		"", "?tx_isolation=%27READ-UNCOMMITTED%27", "?tx_isolation=%27READ-COMMITTED%27&interpolateParams=true", "?tx_isolation=%27SERIALIZABLE%27",
	},
}

// TestKeysExcludeWhateverTheConnectionsIsolationLevel has processes whose connections differ.
func TestKeysExcludeWhateverTheConnectionsIsolationLevel(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		var processes []*process
		for _, options := range levels[d.dialect] {
			processes = append(processes, open(t, d.locks(t, d.Connect(t, d.On.Addr(), options))))
		}
		var all intervals
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() { load(ctx, &all, processes, 2, fewKeys) })
		for began := time.Now(); time.Since(began) < 2*time.Second || all.len() < 30 && time.Since(began) < patience; {
			<-time.After(50 * time.Millisecond)
		}
		cancel()
		running.Wait()
		if n := all.verify(t); n < 30 {
			t.Errorf("%d leases were granted, so little was tested", n)
		}
		d.waitUntilEmpty(t)
	})
}

// TestTheConnectionsIsolationLevelStays has the locks share a connection with others.
func TestTheConnectionsIsolationLevelStays(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		db := d.Connect(t, d.On.Addr(), "")
		db.SetMaxOpenConns(1)
		p := open(t, d.locks(t, db))
		level := `SELECT current_setting('transaction_isolation')`
		if d.dialect == sqllock.MySQL {
			level = `SELECT trx_isolation_level FROM information_schema.innodb_trx WHERE trx_mysql_thread_id = connection_id()`
		}
		read := func() (of string) {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback() //nolint:errcheck // it has changed nothing
			if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM lockaround_row WHERE lock_key = '' FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the level of a transaction", func() bool { // MariaDB shows what was there a moment ago
				return tx.QueryRowContext(t.Context(), level).Scan(&of) == nil
			})
			return of
		}
		want := read()
		for range 3 {
			g, err := p.Acquire(t.Context(), request("stock", false))
			if err != nil {
				t.Fatal(err)
			}
			if got := read(); got != want {
				t.Errorf("after an acquisition the level is %q, and was %q", got, want)
			}
			if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
				t.Fatal(err)
			}
			if got := read(); got != want {
				t.Errorf("after a release the level is %q, and was %q", got, want)
			}
		}
	})
}

// TestRequestThatComesAfterItsCallerHasLeftIsNotGranted loses a request, whose caller leaves, and
// makes it again when its owner was cleaned up. In MySQL what is lost is not yet what may commit.
func TestRequestThatComesAfterItsCallerHasLeftIsNotGranted(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		if d.dialect == sqllock.MySQL {
			return
		}
		link := newProxy(t, d.On.Addr(), false)
		db := d.Connect(t, link.Addr(), d.options)
		p, other := open(t, d.locks(t, db)), open(t, d.locks(t, d.DB))
		g, err := p.Acquire(t.Context(), request("stock", false)) // so that the key has its row
		if err == nil {
			err = p.Release(t.Context(), []driver.Ending{ending(g)})[0]
		}
		if err != nil {
			t.Fatal(err)
		}
		restore := link.BlackHole(proxy.ToServer)
		r := request("stock", false)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := p.Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a request that is lost: %v; want %v", err, context.DeadlineExceeded)
		}
		restore()
		link.Cut()
		ended := fmt.Sprintf(`SELECT count(*) FROM lockaround_lock WHERE position('%x' IN encode(ended, 'hex')) > 0`, r.Owner[:])
		eventually(t, "the end of the request's owner", func() bool { return d.Number(t, ended) == 1 })
		if _, err := other.Acquire(t.Context(), r); !errors.Is(err, driver.ErrPlaceLost) {
			t.Errorf("a request that comes after its owner was cleaned up: %v; want %v", err, driver.ErrPlaceLost)
		}
		g, err = other.Acquire(t.Context(), request("stock", false))
		if err != nil {
			t.Fatalf("the next request: %v", err)
		}
		if err := other.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
			t.Fatal(err)
		}
	})
}

// TestReleaseNeedsNoRow releases a lease whose key's row was swept meanwhile.
func TestReleaseNeedsNoRow(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		p := open(t, d.locks(t, d.DB))
		var last int64
		for range 3 {
			g, err := p.Acquire(t.Context(), request("stock", false))
			if err != nil || g.Token <= last {
				t.Fatalf("token %d after %d, %v", g.Token, last, err)
			}
			last = g.Token
			d.Must(t, `DELETE FROM lockaround_lock WHERE lock_key <> ''`)
			if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
				t.Fatalf("release: %v", err)
			}
			if n := d.Number(t, `SELECT MAX(token) FROM lockaround_lock`); n != g.Token {
				t.Errorf("the key's row remembers token %d, want %d", n, g.Token)
			}
		}
	})
}

// TestKeyWaitsForNoRowOfItsNeighbours has a transaction lock the claims of the keys before and after.
func TestKeyWaitsForNoRowOfItsNeighbours(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		p := open(t, d.locks(t, d.DB))
		for _, neighbour := range []string{"a", "c"} {
			if _, err := p.Acquire(t.Context(), request(neighbour, false)); err != nil {
				t.Fatal(err)
			}
		}
		tx, err := d.Connect(t, d.On.Addr(), "").BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // which locks no gap
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec(`UPDATE lockaround_claim SET listens = listens + 2 WHERE lock_key IN ('a', 'c')`); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			g, err := p.Acquire(t.Context(), request("b", false))
			if err != nil {
				t.Fatal("acquire beside a locked row:", err)
			}
			if err := p.Release(t.Context(), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})[0]; err != nil {
				t.Fatal("release beside a locked row:", err)
			}
		}
		eventually(t, "the claims of the key are deleted", func() bool {
			var left int
			if err := d.DB.QueryRow(`SELECT COUNT(*) FROM lockaround_claim WHERE lock_key = 'b'`).Scan(&left); err != nil {
				t.Fatal(err)
			}
			return left == 0
		})
	})
}

// statements keeps the statements that mention a text.
type statements struct {
	of string
	mu sync.Mutex
	in []string
}

func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, s.of) {
		s.mu.Lock()
		s.in = append(s.in, q.SQL)
		s.mu.Unlock()
	}
	return ctx
}

func (*statements) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestKeyWhoseRowComesMeanwhileIsNotTaken executes a request for a free key step by step. The key's
// row is made by others between the step that looks for it and the one that takes the key, which
// would not exclude anybody without its lock. MySQL has one step.
func TestKeyWhoseRowComesMeanwhileIsNotTaken(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		if d.dialect == sqllock.MySQL {
			return
		}
		config, err := pgx.ParseConfig(d.SourceAt(d.On.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		seen := &statements{of: "INSERT INTO lockaround_claim"}
		config.Tracer = seen
		db := stdlib.OpenDB(*config)
		defer func() { _ = db.Close() }()
		p, other := open(t, d.locks(t, db)), open(t, d.locks(t, d.DB))
		use := func(p *process) {
			t.Helper()
			g, err := p.Acquire(t.Context(), request("stock", false))
			if err == nil {
				err = p.Release(t.Context(), []driver.Ending{ending(g)})[0]
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		use(p)
		seen.mu.Lock()
		steps := strings.Split(seen.in[0], "; ")
		seen.mu.Unlock()
		if len(steps) != 3 || !strings.Contains(steps[1], "FOR UPDATE") {
			t.Fatalf("the steps are %q", steps)
		}
		for _, there := range []bool{false, true} { // the key's row, from the beginning
			d.Must(t, `DELETE FROM lockaround_lock WHERE lock_key <> ''`)
			if there {
				use(other)
			}
			tx, err := d.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			var rows int64
			for i, step := range steps {
				done, err := tx.ExecContext(t.Context(), step)
				if err != nil {
					t.Fatalf("%s: %v", step, err)
				}
				if rows, err = done.RowsAffected(); err != nil {
					t.Fatal(err)
				}
				if i == 1 && !there {
					use(other)
				}
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if taken := rows == 1; taken != there {
				t.Errorf("the key is taken: %t, though its row is locked: %t", taken, there)
			}
		}
	})
}

// TestReleaseOfALeaseThatTheServerHasLostIsNotHeld gives the key to another after the loss.
func TestReleaseOfALeaseThatTheServerHasLostIsNotHeld(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		for name, releases := range map[string]bool{"another one holds the key": false, "another one has released it": true} {
			t.Run(name, func(t *testing.T) {
				p, other := open(t, d.locks(t, d.DB)), open(t, d.locks(t, d.DB))
				lost, err := p.Acquire(t.Context(), request("stock", false))
				if err != nil {
					t.Fatal(err)
				}
				d.Must(t, `DELETE FROM lockaround_claim`, `DELETE FROM lockaround_lock`)
				next, err := other.Acquire(t.Context(), request("stock", false))
				if err != nil || next.Token <= lost.Token {
					t.Fatalf("token %d after %d, %v", next.Token, lost.Token, err)
				}
				release := func(p *process, g driver.Grant) error { return p.Release(t.Context(), []driver.Ending{ending(g)})[0] }
				if releases {
					if err := release(other, next); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					if err := release(p, lost); err != driver.ErrNotHeld {
						t.Errorf("release of the lost lease: %v, want %v", err, driver.ErrNotHeld)
					}
				}
				for range 2 {
					if err := release(other, next); err != nil {
						t.Errorf("release of the other lease: %v", err)
					}
				}
			})
		}
	})
}
