package fence_test

import (
	"database/sql"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockaround/lockaround/core/fence"
)

// TestTransactionsOfAKeyHappenInTheOrderOfTheirTokens has transactions that read and
// then write without any lock but the fence's, which loses updates unless they happen
// one after the other. The first of them are the first users of the key.
func TestTransactionsOfAKeyHappenInTheOrderOfTheirTokens(t *testing.T) {
	const workers, rounds = 8, 15
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		d.Must(t, `DROP TABLE IF EXISTS stock`, `CREATE TABLE stock (sold BIGINT NOT NULL, last BIGINT NOT NULL)`, `INSERT INTO stock VALUES (0, 0)`)
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
		if sold := d.Number(t, `SELECT sold FROM stock`); sold != committed.Load() || sold == 0 {
			t.Errorf("%d transactions committed, %d counted", committed.Load(), sold)
		}
	})
}

func TestNextHolderWaitsForALateTransactionAndReadsWhatItLeft(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		d.Must(t, `DROP TABLE IF EXISTS stock`, `CREATE TABLE stock (units BIGINT NOT NULL)`, `INSERT INTO stock VALUES (7)`)
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
		snapshot := o.Isolation != sql.LevelReadCommitted
		if mustRepeat(err) && snapshot {
			return
		}
		if d.dialect == fence.PostgreSQL && snapshot {
			t.Fatalf("a snapshot from before the late commit: %v, want 40001", err)
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
		d.Must(t, `CREATE TABLE stock (units BIGINT NOT NULL)`, `INSERT INTO stock VALUES (7)`)
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
		if units := d.Number(t, `SELECT units FROM stock`); units != 6 {
			t.Errorf("%d units are left; this was expected to sell the same unit twice", units)
		}
	})
}
