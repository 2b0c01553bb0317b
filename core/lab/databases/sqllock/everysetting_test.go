package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/sqllock"
)

// settings are options of a data source, one each of a connection's settings that matter to
// statements, or could. The locks work with it, or Ping refuses it with an error that has a text.
var settings = map[sqllock.Dialect][]struct{ name, value, refused string }{
	sqllock.MySQL: {
		{"autocommit", "1", ""},
		{"autocommit", "0", ""},
		{"completion_type", "'CHAIN'", ""},
		{"completion_type", "'RELEASE'", ""},
		{"sql_select_limit", "1", ""},
		{"sql_select_limit", "0", ""},
		{"sql_mode", "''", ""},
		{"sql_mode", "'ANSI,TRADITIONAL'", ""}, // ANSI_QUOTES, PIPES_AS_CONCAT, IGNORE_SPACE, and strict
		{"sql_mode", "'ORACLE,EMPTY_STRING_IS_NULL,SIMULTANEOUS_ASSIGNMENT'", ""},
		{"sql_mode", "'NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION'", ""},
		{"tx_isolation", "'READ-UNCOMMITTED'", ""},
		{"tx_isolation", "'READ-COMMITTED'", ""},
		{"tx_isolation", "'SERIALIZABLE'", ""},
		{"time_zone", "'+11:00'", ""},
		{"max_statement_time", "20", ""},
		{"innodb_lock_wait_timeout", "1", ""},
		{"sql_auto_is_null", "1", ""},
		{"sql_safe_updates", "1", "sql_safe_updates"},
		{"tx_read_only", "1", "tx_read_only"},
		{"timestamp", "1000000000", "SET timestamp"},
	},
	sqllock.PostgreSQL: {
		{"default_transaction_isolation", "read committed", ""},
		{"default_transaction_isolation", "repeatable read", ""},
		{"default_transaction_isolation", "serializable", ""},
		{"default_transaction_deferrable", "on", ""},
		{"default_transaction_read_only", "on", "default_transaction_read_only"},
		{"statement_timeout", "20000", ""},
		{"lock_timeout", "50", ""},
		{"idle_in_transaction_session_timeout", "20000", ""},
		{"idle_session_timeout", "20000", ""},
		{"search_path", "nowhere", "search_path"},
		{"standard_conforming_strings", "off", ""},
		{"bytea_output", "escape", ""},
		{"TimeZone", "Asia/Kathmandu", ""},
		{"DateStyle", "German", ""},
	},
}

// TestLocksAreRightUnderEverySettingOrPingRefusesIt has each setting for the connections of one of two
// processes, which does all that there is to do. Connections that it has used are closed at once, and
// with them goes what was not committed.
func TestLocksAreRightUnderEverySettingOrPingRefusesIt(t *testing.T) {
	t.Parallel()
	for _, p := range products {
		t.Run(p.server.Name, func(t *testing.T) {
			t.Parallel()
			for _, tt := range settings[p.dialect] {
				t.Run(tt.name+"="+tt.value, func(t *testing.T) {
					d := p.database(t, p.server.Shared(t))
					options := "?" + tt.name + "=" + url.QueryEscape(tt.value)
					if p.dialect == sqllock.PostgreSQL {
						options = "&" + tt.name + "=" + strings.ReplaceAll(url.QueryEscape(tt.value), "+", "%20")
					}
					db := d.Connect(t, d.On.Addr(), options)
					a := open(t, d.locks(t, db, sqllock.WithPoll(20*time.Millisecond)))
					err := a.Ping(t.Context())
					var refused *driver.PermanentError
					switch {
					case tt.refused == "" && err != nil:
						t.Fatalf("ping: %v", err)
					case tt.refused != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), tt.refused)):
						t.Fatalf("ping: %v; want a refusal that names %s", err, tt.refused)
					case tt.refused == "":
						d.doEverything(t, db, a)
					}
				})
			}
		})
	}
}

// everything is what a process a does, beside another one.
type everything struct {
	*testing.T
	*database
	db   *sql.DB // of a
	a, b *process
}

func (d *database) doEverything(t *testing.T, db *sql.DB, a *process) {
	e := everything{t, d, db, a, open(t, d.locks(t, d.DB))}
	e.exclude()
	e.handOver()
	e.severalLeases()
	e.ousts()
	e.sweeps()
	e.transactions()
}

// acquire has p acquire a key, and closes a's connections.
func (e *everything) acquire(p *process, r driver.Request) driver.Grant {
	e.Helper()
	g, err := p.Acquire(e.Context(), r)
	e.forget()
	if err != nil {
		e.Fatalf("acquire %s: %v", r.Key, err)
	}
	return g
}

func (e *everything) release(p *process, g driver.Grant) {
	e.Helper()
	err := p.Release(e.Context(), []driver.Ending{ending(g)})[0]
	e.forget()
	if err != nil {
		e.Fatalf("release %s: %v", g.Key, err)
	}
}

func (e *everything) busy(p *process, key string) {
	e.Helper()
	var held *driver.HeldError
	if _, err := p.Acquire(e.Context(), request(key, false)); !errors.As(err, &held) {
		e.Fatalf("acquire %s, which another process holds: %v; want a %T", key, err, held)
	}
	e.forget()
}

// forget closes a's connections that are idle.
func (e *everything) forget() {
	e.db.SetMaxIdleConns(-1)
	e.db.SetMaxIdleConns(20)
}

func (e *everything) exclude() {
	e.Helper()
	for range 3 { // by a decision, and the second time by one statement
		g := e.acquire(e.a, request("stock", false))
		e.busy(e.b, "stock")
		e.release(e.a, g)
		g = e.acquire(e.b, request("stock", false))
		e.busy(e.a, "stock")
		e.release(e.b, g)
	}
	eventually(e, "the claims' end", func() bool { return e.Number(e, `SELECT count(*) FROM lockaround_claim`) == 0 })
}

// handOver has a wait twice: for long enough that its place is extended, and for b's release.
func (e *everything) handOver() {
	e.Helper()
	g := e.acquire(e.b, request("stock", false))
	type result struct {
		g   driver.Grant
		err error
	}
	next := make(chan result, 1)
	go func() {
		g, err := e.a.Acquire(e.Context(), request("stock", true))
		next <- result{g, err}
	}()
	<-e.a.queued
	until := func() int64 { return e.Number(e, `SELECT MAX(expires_us) FROM lockaround_claim WHERE state = 0`) }
	first := until()
	eventually(e, "a longer place", func() bool { e.forget(); return until() > first })
	e.release(e.b, g)
	r := <-next
	if r.err != nil || r.g.Token <= g.Token {
		e.Fatalf("the waiter: token %d after %d, %v", r.g.Token, g.Token, r.err)
	}
	e.forget()
	e.busy(e.b, "stock")
	e.release(e.a, r.g)
}

// severalLeases has a hold three keys, and share one of them with three.
func (e *everything) severalLeases() {
	e.Helper()
	var rs []driver.Renewal
	var gs []driver.Grant
	take := func(key string) {
		r := request(key, false)
		r.Mode = driver.Shared
		g := e.acquire(e.a, r)
		gs, rs = append(gs, g), append(rs, driver.Renewal{ID: g.ID, Token: g.Token, TTL: 2 * longTTL})
	}
	for i := range 3 {
		take(fmt.Sprint("shared ", i))
		take("shared")
	}
	shortest := func() int64 { return e.Number(e, `SELECT MIN(ttl_us) FROM lockaround_claim`) }
	for i, r := range e.a.Renew(e.Context(), rs) {
		if r.Err != nil {
			e.Errorf("renew lease %d of %d: %v", i+1, len(rs), r.Err)
		}
	}
	e.forget()
	if ttl := time.Duration(shortest()) * time.Microsecond; ttl != 2*longTTL {
		e.Errorf("after the renewals a lease lasts for %v, want %v", ttl, 2*longTTL)
	}
	st, err := e.a.Inspect(e.Context(), "shared")
	if err != nil || len(st.Holders) != 3 {
		e.Errorf("inspect a key with 3 holders: %d holders, %v", len(st.Holders), err)
	}
	page, err := e.a.Session.(driver.Lister).List(e.Context(), "shared", "", 100)
	if err != nil || len(page.Keys) != 4 {
		e.Errorf("list 4 keys: %q, %v", page.Keys, err)
	}
	e.busy(e.b, "shared")
	eventually(e, "a poll that finds that the key was asked for", func() bool {
		e.a.mu.Lock()
		defer e.a.mu.Unlock()
		return e.a.contended || e.a.lost > 0
	})
	e.a.mu.Lock()
	if e.a.lost > 0 {
		e.Errorf("%d leases that are there were lost", e.a.lost)
	}
	e.a.mu.Unlock()
	for _, g := range gs {
		e.release(e.a, g)
	}
}

func (e *everything) ousts() {
	e.Helper()
	g := e.acquire(e.b, request("stock", false))
	if err := e.a.Oust(e.Context(), "stock", g.Token); err != nil {
		e.Errorf("oust: %v", err)
	}
	e.forget()
	if r := e.b.Renew(e.Context(), []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: longTTL}})[0]; !errors.Is(r.Err, driver.ErrNotHeld) {
		e.Errorf("renew a lease that was ousted: %v, want %v", r.Err, driver.ErrNotHeld)
	}
	next := e.acquire(e.b, request("stock", false))
	if next.Token <= g.Token {
		e.Errorf("token %d after %d, which was ousted", next.Token, g.Token)
	}
	e.release(e.b, next)
}

func (e *everything) sweeps() {
	e.Helper()
	e.Must(e, `UPDATE lockaround_lock SET token = token + 3600000000 WHERE lock_key = 'stock'`) // by a clock that is ahead
	last := e.Number(e, `SELECT token FROM lockaround_lock WHERE lock_key = 'stock'`)
	e.acquire(e.b, request("dead", false))
	e.Must(e, `UPDATE lockaround_claim SET expires_us = 1 WHERE lock_key = 'dead'`)
	e.transact("purged", 0)
	e.expireRetention(e)
	if _, err := sqllock.Purge(e.Context(), e.db, e.dialect); err != nil {
		e.Fatalf("purge: %v", err)
	}
	e.forget()
	e.expireRetention(e) // of the key whose claim has expired
	if _, err := sqllock.Purge(e.Context(), e.db, e.dialect); err != nil {
		e.Fatalf("purge: %v", err)
	}
	e.forget()
	for _, left := range []string{`lockaround_claim`, `lockaround_row`, `lockaround_lock WHERE lock_key <> ''`} {
		if n := e.Number(e, `SELECT count(*) FROM `+left); n != 0 {
			e.Errorf("after the purge there are %d rows of %s", n, left)
		}
	}
	g := e.acquire(e.a, request("stock", false))
	if g.Token <= last {
		e.Errorf("token %d after %d, of a row that was purged", g.Token, last)
	}
	e.release(e.a, g)
}

func (e *everything) transact(key string, wait time.Duration) {
	e.Helper()
	if e.isRepeatable() {
		return
	}
	if err := sqllock.WithTx(e.Context(), e.db, e.dialect, key, wait, func(context.Context, *sql.Tx) error { return nil }); err != nil {
		e.Errorf("lock a key in a transaction: %v", err)
	}
	e.forget()
}

// transactions has a wait for a lock of InTx.
func (e *everything) transactions() {
	e.Helper()
	e.transact("stock", 0)
	tx := e.begin(e, nil)
	if err := e.inTx(e, tx, "stock", 0); err != nil {
		e.Fatal(err)
	}
	if e.isRepeatable() {
		return
	}
	err := sqllock.WithTx(e.Context(), e.db, e.dialect, "stock", time.Millisecond, func(context.Context, *sql.Tx) error { return nil })
	if !errors.Is(err, sqllock.ErrBusy) {
		e.Errorf("lock a key that another transaction has: %v, want %v", err, sqllock.ErrBusy)
	}
	got := async(func() error {
		return sqllock.WithTx(e.Context(), e.db, e.dialect, "stock", sqllock.Forever, func(context.Context, *sql.Tx) error { return nil })
	})
	eventually(e, "a statement that waits", func() bool {
		select {
		case err := <-got:
			e.Fatalf("a transaction that was to wait for another one ended: %v", err)
		default:
		}
		return e.hasRowWait(e)
	})
	<-time.After(100 * time.Millisecond) // longer than lock_timeout
	if err := tx.Commit(); err != nil {
		e.Fatal(err)
	}
	if err := <-got; err != nil {
		e.Errorf("wait for a key that another transaction has: %v", err)
	}
}

// isRepeatable reports whether a's transactions are at REPEATABLE READ, which InTx refuses in PostgreSQL.
func (e *everything) isRepeatable() bool {
	var level string
	if e.dialect == sqllock.PostgreSQL {
		if err := e.db.QueryRowContext(e.Context(), `SELECT current_setting('transaction_isolation')`).Scan(&level); err != nil {
			e.Fatal(err)
		}
	}
	return level == "repeatable read"
}
