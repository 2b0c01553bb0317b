package databases_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
)

var levels = []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable}

// eachLevel runs a test on every database at every isolation level.
func eachLevel(t *testing.T, test func(t *testing.T, d *database, o *sql.TxOptions)) {
	each(t, func(t *testing.T, d *database) {
		for _, level := range levels {
			t.Run(level.String(), func(t *testing.T) { test(t, d, &sql.TxOptions{Isolation: level}) })
		}
	})
}

// begin begins a transaction that is rolled back with the test, unless it ended before.
func (d *database) begin(t testing.TB, o *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// admit admits a token in a transaction of its own.
func (d *database) admit(t testing.TB, o *sql.TxOptions, token fence.Token) error {
	t.Helper()
	tx := d.begin(t, o)
	if err := d.fence.Admit(t.Context(), tx, token); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// mustRepeat reports whether a database asks for the transaction to be repeated.
func mustRepeat(err error) bool {
	var p *pgconn.PgError
	var m *mysql.MySQLError
	switch {
	case errors.As(err, &p):
		return p.Code == "40001" || p.Code == "40P01"
	case errors.As(err, &m):
		return m.Number == 1213
	}
	return false
}

// waiting returns when a transaction waits for another's lock.
func (d *database) waiting(t testing.TB) {
	t.Helper()
	query := `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()`
	if d.dialect == fence.MySQL {
		query = `SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'innodb_row_lock_current_waits'`
	}
	until(t, "a transaction that waits", func() bool { return d.number(t, query) > 0 })
}

// until asks every 5 ms whether something holds, for half a minute.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-limit.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestMigrateMayBeRepeatedAndRunByManyAtOnce(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		f, err := fence.NewSQL(d.dialect, d.name+"_again")
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 2 {
					if err := f.Migrate(t.Context(), d.DB); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
	})
}

func TestSmallerTokenIsRefusedAndAnEqualOnePasses(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		key := o.Isolation.String()
		for _, step := range []struct {
			key    string
			number int64
			want   error
		}{
			{key, 5, nil},
			{key, 5, nil},
			{key, 4, fence.ErrStale},
			{key, 1 << 62, nil},
			{key, 6, fence.ErrStale},
			{key + "2", 1, nil},
			{key, 1 << 62, nil},
			{key, 0, fence.ErrMissing},
			{key, -1, fence.ErrMalformed},
			{"", 7, fence.ErrMalformed},
		} {
			if err := d.admit(t, o, fence.Token{Key: step.key, Number: step.number}); !errors.Is(err, step.want) {
				t.Fatalf("token %d: %v, want %v", step.number, err, step.want)
			}
		}
		n := d.number(t, `SELECT count(*) FROM lockaround_fence`)
		if err := d.admit(t, o, fence.Token{Key: key, Number: 8}); !errors.Is(err, fence.ErrStale) || d.number(t, `SELECT count(*) FROM lockaround_fence`) != n {
			t.Errorf("a refused token left something: %v", err)
		}
	})
}

func TestTokenOfATransactionThatIsRolledBackIsForgotten(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		for _, first := range []bool{true, false} {
			tx := d.begin(t, o)
			if err := d.fence.Admit(t.Context(), tx, fence.Token{Key: o.Isolation.String(), Number: 9}); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := d.admit(t, o, fence.Token{Key: o.Isolation.String(), Number: 3}); err != nil {
				t.Errorf("first use %t: %v", first, err)
			}
		}
	})
}

func TestKeysOfAnyBytesAreKeptApart(t *testing.T) {
	keys := []string{
		"a", "A", "a ", "ä", "a\u0308", "\x00", "\xff\xfe", "'; DROP TABLE lockaround_fence; --", `\`, "a%2F",
		strings.Repeat("x", core.MaxKeyLength), strings.Repeat("x", core.MaxKeyLength-1) + "\xff",
	}
	each(t, func(t *testing.T, d *database) {
		for i, key := range keys {
			if err := d.admit(t, nil, fence.Token{Key: key, Number: int64(100 - i)}); err != nil {
				t.Errorf("key %q: %v", key, err)
			}
		}
		if n := d.number(t, `SELECT count(*) FROM lockaround_fence`); n != int64(len(keys)) {
			t.Errorf("%d rows for %d keys", n, len(keys))
		}
		if err := d.admit(t, nil, fence.Token{Key: strings.Repeat("x", core.MaxKeyLength+1), Number: 1}); !errors.Is(err, fence.ErrMalformed) {
			t.Errorf("a key that is too long: %v", err)
		}
	})
}

// TestTransactionsOfAKeyHappenInTheOrderOfTheirTokens has transactions that read and
// then write without any lock but the fence's, which loses updates unless they happen
// one after the other. The first of them are the first users of the key.
func TestTransactionsOfAKeyHappenInTheOrderOfTheirTokens(t *testing.T) {
	const workers, rounds = 8, 15
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		d.exec(t, `DROP TABLE IF EXISTS stock`, `CREATE TABLE stock (sold BIGINT NOT NULL, last BIGINT NOT NULL)`, `INSERT INTO stock VALUES (0, 0)`)
		sell := func(token fence.Token) error {
			tx, err := d.BeginTx(t.Context(), o)
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := d.fence.Admit(t.Context(), tx, token); err != nil {
				return err
			}
			var sold, last int64
			if err := tx.QueryRowContext(t.Context(), `SELECT sold, last FROM stock`).Scan(&sold, &last); err != nil {
				return err
			}
			if last > token.Number {
				t.Errorf("token %d was admitted after %d", token.Number, last)
			}
			set := `UPDATE stock SET sold = ?, last = ?`
			if d.dialect == fence.PostgreSQL {
				set = `UPDATE stock SET sold = $1, last = $2`
			}
			if _, err := tx.ExecContext(t.Context(), set, sold+1, token.Number); err != nil {
				return err
			}
			return tx.Commit()
		}
		var (
			issued, committed, stale, repeated atomic.Int64
			all                                sync.WaitGroup
			start                              = make(chan struct{})
		)
		for range workers {
			all.Go(func() {
				<-start
				for range rounds {
					token := fence.Token{Key: "stock:" + o.Isolation.String(), Number: issued.Add(1)}
					err := sell(token)
					for mustRepeat(err) {
						repeated.Add(1)
						err = sell(token)
					}
					switch {
					case err == nil:
						committed.Add(1)
					case errors.Is(err, fence.ErrStale):
						stale.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		close(start)
		all.Wait()
		t.Logf("%d committed, %d refused, %d repeated", committed.Load(), stale.Load(), repeated.Load())
		if sold := d.number(t, `SELECT sold FROM stock`); sold != committed.Load() || sold == 0 {
			t.Errorf("%d transactions committed, %d counted", committed.Load(), sold)
		}
	})
}

// late is a transaction that goes on in the background.
func late[T any](f func() T) <-chan T {
	c := make(chan T, 1)
	go func() { c <- f() }()
	return c
}

func TestNextHolderWaitsForALateTransactionAndReadsWhatItLeft(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		d.exec(t, `DROP TABLE IF EXISTS stock`, `CREATE TABLE stock (units BIGINT NOT NULL)`, `INSERT INTO stock VALUES (7)`)
		key := o.Isolation.String()
		paused := d.begin(t, o)
		if err := d.fence.Admit(t.Context(), paused, fence.Token{Key: key, Number: 1}); err != nil {
			t.Fatal(err)
		}
		next := d.begin(t, o)
		admitted := late(func() error { return d.fence.Admit(t.Context(), next, fence.Token{Key: key, Number: 2}) })
		d.waiting(t)
		if _, err := paused.ExecContext(t.Context(), `UPDATE stock SET units = units - 1`); err != nil {
			t.Fatal(err)
		}
		if err := paused.Commit(); err != nil {
			t.Fatal(err)
		}
		err := <-admitted
		if d.dialect == fence.PostgreSQL && o.Isolation != sql.LevelReadCommitted {
			if !mustRepeat(err) {
				t.Fatalf("a snapshot from before the late commit: %v, want 40001", err)
			}
			return
		}
		var units int64
		if err := errors.Join(err, next.QueryRowContext(t.Context(), `SELECT units FROM stock`).Scan(&units)); err != nil || units != 6 {
			t.Errorf("the next holder reads %d units: %v", units, err)
		}
	})
}

func TestHolderThatComesAfterTheNextOneIsRefused(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		key := o.Isolation.String()
		if err := d.admit(t, o, fence.Token{Key: key, Number: 1}); err != nil {
			t.Fatal(err)
		}
		paused := d.begin(t, o)
		if _, err := paused.ExecContext(t.Context(), `SELECT 1`); err != nil {
			t.Fatal(err)
		}
		next := d.begin(t, o)
		if err := d.fence.Admit(t.Context(), next, fence.Token{Key: key, Number: 3}); err != nil {
			t.Fatal(err)
		}
		admitted := late(func() error { return d.fence.Admit(t.Context(), paused, fence.Token{Key: key, Number: 2}) })
		d.waiting(t)
		if err := next.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-admitted; !errors.Is(err, fence.ErrStale) && !mustRepeat(err) {
			t.Errorf("token 2 after 3: %v", err)
		}
		if err := paused.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := d.admit(t, o, fence.Token{Key: key, Number: 2}); !errors.Is(err, fence.ErrStale) {
			t.Errorf("token 2, repeated: %v", err)
		}
	})
}

// TestTokenWrittenLastLosesAnUpdate is why Admit comes first: the next holder reads
// before the late COMMIT, and overwrites it afterwards, with the larger token.
func TestTokenWrittenLastLosesAnUpdate(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		o := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
		d.exec(t, `CREATE TABLE stock (units BIGINT NOT NULL)`, `INSERT INTO stock VALUES (7)`)
		deduct := func(tx *sql.Tx, read int64) error {
			set := `UPDATE stock SET units = ?`
			if d.dialect == fence.PostgreSQL {
				set = `UPDATE stock SET units = $1`
			}
			_, err := tx.ExecContext(t.Context(), set, read-1)
			return err
		}
		paused, next := d.begin(t, o), d.begin(t, o)
		var read int64
		if err := next.QueryRowContext(t.Context(), `SELECT units FROM stock`).Scan(&read); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(deduct(paused, 7), d.fence.Admit(t.Context(), paused, fence.Token{Key: "k", Number: 1})); err != nil {
			t.Fatal(err)
		}
		written := late(func() error {
			return errors.Join(deduct(next, read), d.fence.Admit(t.Context(), next, fence.Token{Key: "k", Number: 2}), next.Commit())
		})
		d.waiting(t)
		if err := errors.Join(paused.Commit(), <-written); err != nil {
			t.Fatal(err)
		}
		if units := d.number(t, `SELECT units FROM stock`); units != 6 {
			t.Errorf("%d units are left; this was expected to sell the same unit twice", units)
		}
	})
}

func TestRowsThatAreOldEnoughMayBeDeleted(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, key := range []string{"old", "used", "new"} {
			if err := d.admit(t, nil, fence.Token{Key: key, Number: 5}); err != nil {
				t.Fatal(err)
			}
		}
		age := `UPDATE lockaround_fence SET written_at = now() - interval '91 days' WHERE lock_key IN ('old', 'used')`
		prune := `DELETE FROM lockaround_fence WHERE written_at < now() - interval '90 days'`
		if d.dialect == fence.MySQL {
			age = `UPDATE lockaround_fence SET written_at = CURRENT_TIMESTAMP - INTERVAL 91 DAY WHERE lock_key IN ('old', 'used')`
			prune = `DELETE FROM lockaround_fence WHERE written_at < CURRENT_TIMESTAMP - INTERVAL 90 DAY`
		}
		d.exec(t, age)
		tx := d.begin(t, nil)
		if err := d.fence.Admit(t.Context(), tx, fence.Token{Key: "used", Number: 5}); err != nil { // its holder lives
			t.Fatal(err)
		}
		pruned := late(func() error { _, err := d.ExecContext(t.Context(), prune); return err })
		d.waiting(t)
		if err := errors.Join(tx.Commit(), <-pruned); err != nil {
			t.Fatal(err)
		}
		var refused []string
		for _, key := range []string{"old", "used", "new"} {
			if errors.Is(d.admit(t, nil, fence.Token{Key: key, Number: 4}), fence.ErrStale) {
				refused = append(refused, key)
			}
		}
		if !slices.Equal(refused, []string{"used", "new"}) {
			t.Errorf("refused %q", refused)
		}
	})
}
