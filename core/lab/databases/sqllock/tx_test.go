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

	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/sqllock"
)

func (d *database) begin(t testing.TB, o *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() }) // most have ended already
	return tx
}

func (d *database) inTx(t testing.TB, tx *sql.Tx, key string, wait time.Duration) error {
	t.Helper()
	return sqllock.InTx(t.Context(), tx, d.dialect, key, wait)
}

// async runs f in the background, and returns where its result will arrive.
func async(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// waitForRowWait returns when a statement of the database waits for a row.
func (d *database) waitForRowWait(t testing.TB) {
	t.Helper()
	eventually(t, "a statement that waits", func() bool { return d.hasRowWait(t) })
}

// hasRowWait reports whether a statement of the database waits for a row.
func (d *database) hasRowWait(t testing.TB) bool {
	t.Helper()
	query := `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
	if d.dialect == sqllock.MySQL {
		// The number is for the whole server. innodb_trx has it for each database, but is
		// cached while it is read more often than every 100 ms.
		query = `SELECT count(*) FROM information_schema.global_status, information_schema.processlist
			WHERE variable_name = 'innodb_row_lock_current_waits' AND variable_value > 0
			AND db = database() AND id <> connection_id() AND command <> 'Sleep'`
	}
	return d.Number(t, query) > 0
}

// rowCases says whether a key's row exists.
var rowCases = map[string]bool{"a key with a row": true, "a new key": false}

func (d *database) createRow(t testing.TB, row bool) {
	t.Helper()
	if !row {
		return
	}
	tx := d.begin(t, nil)
	if err := errors.Join(d.inTx(t, tx, "stock", 0), tx.Commit()); err != nil {
		t.Fatal(err)
	}
}

func TestRowIsHeldUntilTheTransactionEnds(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		for name, row := range rowCases {
			for end, f := range map[string]func(*sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
				t.Run(name+", "+end, func(t *testing.T) {
					d.Must(t, `DELETE FROM lockaround_row`)
					d.createRow(t, row)
					a, b := d.begin(t, nil), d.begin(t, nil)
					if err := d.inTx(t, a, "stock", 0); err != nil {
						t.Fatal(err)
					}
					if err := d.inTx(t, a, "stock", 0); err != nil {
						t.Errorf("the transaction that has it: %v", err)
					}
					got := async(func() error { return d.inTx(t, b, "stock", patience) })
					d.waitForRowWait(t)
					select {
					case err := <-got:
						t.Fatalf("the second one returned %v while the first one held", err)
					default:
					}
					if err := f(a); err != nil {
						t.Fatal(err)
					}
					if err := <-got; err != nil {
						t.Fatalf("the second one: %v", err)
					}
					if err := b.Commit(); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	})
}

// serverSlack is how much longer a server may take than expected, because it shares its
// machine.
const serverSlack = 5 * time.Second

func TestTakenRowIsRefusedInTimeAndTheTransactionGoesOn(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		machine := hiccups.Start(t)
		d.Must(t, `CREATE TABLE work (id INT PRIMARY KEY)`)
		for name, row := range rowCases {
			t.Run(name, func(t *testing.T) {
				d.Must(t, `DELETE FROM lockaround_row`, `DELETE FROM work`)
				d.createRow(t, row)
				a, b := d.begin(t, nil), d.begin(t, nil)
				if err := d.inTx(t, a, "stock", 0); err != nil {
					t.Fatal(err)
				}
				if _, err := b.ExecContext(t.Context(), `INSERT INTO work VALUES (1)`); err != nil {
					t.Fatal(err)
				}
				for wait, within := range map[time.Duration][2]time.Duration{
					0:           {0, 500 * time.Millisecond},
					time.Second: {900 * time.Millisecond, 3 * time.Second},
				} {
					start := time.Now()
					if err := d.inTx(t, b, "stock", wait); !errors.Is(err, sqllock.ErrBusy) {
						t.Errorf("wait %v: %v, not ErrBusy", wait, err)
					}
					// With the server's default wait it would be refused after 50 s, or never.
					if took, most := time.Since(start), machine.Allow(within[1]+serverSlack); took < within[0] || took > most {
						t.Errorf("wait %v: refused after %v, want %v to %v, or %v on this machine", wait, took, within[0], within[1], most)
					}
				}
				if err := d.inTx(t, b, "another", 0); err != nil {
					t.Errorf("another key after a refusal: %v", err)
				}
				if err := errors.Join(b.Commit(), a.Commit()); err != nil {
					t.Fatal(err)
				}
				if n := d.Number(t, `SELECT count(*) FROM work`); n != 1 {
					t.Errorf("%d rows of the transaction that was refused a lock are there, not 1", n)
				}
			})
		}
	})
}

func TestSettingsOfTheTransactionStayAsTheyWere(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		set, get, want := `SET LOCAL lock_timeout = '7s'`, `SELECT current_setting('lock_timeout')`, "7s"
		if d.dialect == sqllock.MySQL {
			set, get, want = `SET SESSION innodb_lock_wait_timeout = 7`, `SELECT @@innodb_lock_wait_timeout`, "7"
		}
		a := d.begin(t, nil)
		if err := d.inTx(t, a, "taken", 0); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"free", "taken"} {
			for _, wait := range []time.Duration{0, 50 * time.Millisecond, sqllock.Forever} {
				if key == "taken" && wait == sqllock.Forever {
					continue
				}
				tx := d.begin(t, nil)
				if _, err := tx.ExecContext(t.Context(), set); err != nil {
					t.Fatal(err)
				}
				if err := d.inTx(t, tx, key, wait); err != nil && !errors.Is(err, sqllock.ErrBusy) {
					t.Fatal(err)
				}
				var got string
				if err := tx.QueryRowContext(t.Context(), get).Scan(&got); err != nil || got != want {
					t.Errorf("%s key, wait %v: the setting is %q, and was %q: %v", key, wait, got, want, err)
				}
				if err := tx.Rollback(); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestWhoWaitedReadsWhatTheOneBeforeCommitted runs at each database's default isolation
// level, which is REPEATABLE READ in MySQL.
func TestWhoWaitedReadsWhatTheOneBeforeCommitted(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE stock (units INT)`, `INSERT INTO stock VALUES (7)`)
		a, b := d.begin(t, nil), d.begin(t, nil)
		if err := d.inTx(t, a, "stock", 0); err != nil {
			t.Fatal(err)
		}
		got := async(func() error { return d.inTx(t, b, "stock", sqllock.Forever) })
		d.waitForRowWait(t)
		if _, err := a.ExecContext(t.Context(), `UPDATE stock SET units = 6`); err != nil {
			t.Fatal(err)
		}
		if err := a.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		var units int
		if err := b.QueryRowContext(t.Context(), `SELECT units FROM stock`).Scan(&units); err != nil || units != 6 {
			t.Errorf("the second one reads %d units, %v", units, err)
		}
	})
}

func TestLevelWhoseSnapshotComesBeforeTheLockIsRefused(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		tx := d.begin(t, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		err := d.inTx(t, tx, "stock", 0)
		if d.dialect == sqllock.MySQL {
			if err != nil {
				t.Error(err)
			}
		} else if err == nil || !strings.Contains(err.Error(), "READ COMMITTED") {
			t.Errorf("REPEATABLE READ: %v", err)
		}
	})
}

func TestKilledConnectionFreesItsRow(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		id := `SELECT pg_backend_pid()`
		if d.dialect == sqllock.MySQL {
			id = `SELECT connection_id()`
		}
		a, b := d.begin(t, nil), d.begin(t, nil)
		var n int64
		if err := errors.Join(d.inTx(t, a, "stock", 0), a.QueryRowContext(t.Context(), id).Scan(&n)); err != nil {
			t.Fatal(err)
		}
		got := async(func() error { return d.inTx(t, b, "stock", patience) })
		d.waitForRowWait(t)
		d.Must(t, fmt.Sprintf(d.kill, n))
		if err := <-got; err != nil {
			t.Errorf("the second one after the first one's connection was killed: %v", err)
		}
	})
}

// TestTransactionsWithNewKeysDoNotDeadlock makes several transactions use each key at once
// for the first time, as with new orders.
func TestTransactionsWithNewKeysDoNotDeadlock(t *testing.T) {
	const callers, orders = 8, 20
	onEachDatabase(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE orders (id INT PRIMARY KEY, n INT NOT NULL)`)
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				for i := range orders {
					err := sqllock.WithTx(t.Context(), d.DB, d.dialect, fmt.Sprint("order ", i), sqllock.Forever, func(ctx context.Context, tx *sql.Tx) error {
						// Only the lock makes this read and write atomic.
						var n int
						err := tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT n FROM orders WHERE id = %d`, i)).Scan(&n)
						if errors.Is(err, sql.ErrNoRows) {
							_, err = tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO orders VALUES (%d, 1)`, i))
							return err
						}
						if err == nil {
							_, err = tx.ExecContext(ctx, fmt.Sprintf(`UPDATE orders SET n = %d WHERE id = %d`, n+1, i))
						}
						return err
					})
					if err != nil {
						t.Errorf("order %d: %v", i, err)
					}
				}
			})
		}
		running.Wait()
		if n := d.Number(t, `SELECT count(*) FROM orders WHERE n = 8`); n != orders {
			t.Errorf("%d orders of %d were counted right", n, orders)
		}
	})
}

func TestFunctionThatFailsIsRolledBack(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		d.Must(t, `CREATE TABLE work (id INT PRIMARY KEY)`)
		failure := errors.New("out of stock")
		run := func(end func() error) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			return sqllock.WithTx(t.Context(), d.DB, d.dialect, "stock", 0, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, `INSERT INTO work VALUES (1)`); err != nil {
					t.Error(err)
				}
				return end()
			})
		}
		if err := run(func() error { return failure }); err != failure {
			t.Errorf("the function's error became %v", err)
		}
		if err := run(func() error { panic("oops") }); err == nil || err.Error() != "panic: oops" {
			t.Errorf("the function's panic became %v", err)
		}
		if n := d.Number(t, `SELECT count(*) FROM work`); n != 0 {
			t.Errorf("%d rows are there of functions that failed", n)
		}
		if err := run(func() error { return nil }); err != nil {
			t.Errorf("after they failed: %v", err)
		}
		if n := d.Number(t, `SELECT count(*) FROM work`); n != 1 {
			t.Errorf("%d rows are there of a function that succeeded", n)
		}
	})
}

func TestPurgeSparesRowsThatAreHeldAndTheirWaiters(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		for _, key := range []string{"held", "idle", "young"} {
			tx := d.begin(t, nil)
			if err := errors.Join(d.inTx(t, tx, key, 0), tx.Commit()); err != nil {
				t.Fatal(err)
			}
		}
		d.Must(t, `UPDATE lockaround_row SET created_us = 1 WHERE lock_key <> 'young'`)
		a, b := d.begin(t, nil), d.begin(t, nil)
		if err := d.inTx(t, a, "held", 0); err != nil {
			t.Fatal(err)
		}
		got := async(func() error { return d.inTx(t, b, "held", patience) })
		d.waitForRowWait(t)
		if n := d.purge(t); n != 1 {
			t.Errorf("%d rows were removed; only one was old and idle", n)
		}
		if err := a.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Errorf("who waited: %v", err)
		}
		c := d.begin(t, nil)
		if err := d.inTx(t, c, "held", 0); !errors.Is(err, sqllock.ErrBusy) {
			t.Errorf("beside who waited: %v", err)
		}
		if err := d.inTx(t, c, "idle", 0); err != nil {
			t.Errorf("a key whose row was removed: %v", err)
		}
	})
}
