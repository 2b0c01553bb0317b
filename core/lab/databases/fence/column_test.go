package fence_test

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockaround/lockaround/core/fence"
)

const notNull = `NOT NULL DEFAULT 0`

// column is the token column of a table with one row.
func (d *database) column(t testing.TB, null string) *fence.Column {
	t.Helper()
	d.Must(t, `DROP TABLE IF EXISTS stock`,
		`CREATE TABLE stock (sku VARCHAR(20) PRIMARY KEY, units BIGINT NOT NULL, fence BIGINT `+null+`)`,
		`INSERT INTO stock (sku, units) VALUES ('A-1', 7)`)
	c, err := fence.NewColumn(d.dialect, "stock", "sku", "fence")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// units sets the units of a row.
func (d *database) units() string {
	if d.dialect == fence.PostgreSQL {
		return `units = $1`
	}
	return `units = ?`
}

// stockToken is a token of the lock of row A-1.
func stockToken(number int64) fence.Token { return fence.Token{Key: "stock:A-1", Number: number} }

func TestColumnThatRoundsTokensIsRefused(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		types := map[string]bool{"DOUBLE PRECISION": false, "REAL": false, "INT": false, "VARCHAR(30)": false, "BIGINT": true, "NUMERIC(20)": true}
		if d.dialect == fence.MySQL {
			types["BIGINT UNSIGNED"] = true
		}
		for kind, ok := range types {
			d.Must(t, `DROP TABLE IF EXISTS stock`, `CREATE TABLE stock (sku VARCHAR(20) PRIMARY KEY, units BIGINT NOT NULL, fence `+kind+` `+notNull+`)`,
				`INSERT INTO stock (sku, units) VALUES ('A-1', 7)`)
			c, err := fence.NewColumn(d.dialect, "stock", "sku", "fence")
			if err != nil {
				t.Fatal(err)
			}
			err = c.Update(t.Context(), d, stockToken(1<<60), "A-1", d.units(), 6)
			if (err == nil) != ok || !ok && !strings.Contains(err.Error(), "BIGINT NOT NULL DEFAULT 0") {
				t.Errorf("%s: %v; want it to serve: %v", kind, err, ok)
			}
		}
	})
}

func TestStaleTokenIsToldFromARowThatIsNotThere(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		c := d.column(t, notNull)
		for _, step := range []struct {
			sku    string
			number int64
			units  int64
			want   error
			left   int64
		}{
			{"A-1", 5, 6, nil, 6},
			{"A-1", 5, 5, nil, 5},
			{"A-1", 5, 5, nil, 5}, // MySQL counts no row
			{"A-1", 4, 9, fence.ErrStale, 5},
			{"A-1", 4, 5, fence.ErrStale, 5},
			{"B-2", 6, 9, sql.ErrNoRows, 5},
			{"A-1", 6, 5, nil, 5},
			{"A-1", 5, 4, fence.ErrStale, 5},
			{"A-1", 0, 4, fence.ErrMissing, 5},
		} {
			err := c.Update(t.Context(), d, stockToken(step.number), step.sku, d.units(), step.units)
			if !errors.Is(err, step.want) {
				t.Errorf("token %d, row %s: %v, want %v", step.number, step.sku, err, step.want)
			}
			if left := d.Number(t, `SELECT units FROM stock WHERE sku = 'A-1'`); left != step.left {
				t.Errorf("token %d, row %s: %d units are left, want %d", step.number, step.sku, left, step.left)
			}
		}
	})
}

func TestColumnThatCannotServeIsToldOf(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		c := d.column(t, `NULL`)
		if err := c.Update(t.Context(), d, stockToken(5), "A-1", d.units(), 1); err == nil || !strings.Contains(err.Error(), "NOT NULL DEFAULT 0") {
			t.Errorf("NULL: %v", err)
		}
		d.column(t, notNull)
		d.Must(t, `INSERT INTO stock (sku, units) VALUES ('B-2', 7)`)
		c, err := fence.NewColumn(d.dialect, "stock", "units", "fence")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Update(t.Context(), d, stockToken(5), 7, ""); err == nil || !strings.Contains(err.Error(), "unique") {
			t.Errorf("two rows: %v", err)
		}
	})
}

// TestTokenAloneBarsThoseBefore has a holder bar its predecessors before it reads.
func TestTokenAloneBarsThoseBefore(t *testing.T) {
	eachLevel(t, func(t *testing.T, d *database, o *sql.TxOptions) {
		c := d.column(t, notNull)
		tx := d.begin(t, o)
		if err := c.Update(t.Context(), tx, stockToken(2), "A-1", ""); err != nil {
			t.Fatal(err)
		}
		before := late(func() error { return c.Update(t.Context(), d, stockToken(1), "A-1", d.units(), 99) })
		d.waiting(t)
		var units int64
		err := tx.QueryRowContext(t.Context(), `SELECT units FROM stock WHERE sku = 'A-1'`).Scan(&units)
		if err := errors.Join(err, c.Update(t.Context(), tx, stockToken(2), "A-1", d.units(), units-1), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		if err := <-before; !errors.Is(err, fence.ErrStale) {
			t.Errorf("the one before: %v", err)
		}
		if left := d.Number(t, `SELECT units FROM stock`); left != 6 {
			t.Errorf("%d units are left", left)
		}
	})
}

// TestSnapshotDoesNotHideALargerToken has a transaction read before another holder
// writes.
func TestSnapshotDoesNotHideALargerToken(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		for _, level := range levels[:2] { // MySQL's SERIALIZABLE lets nobody write what was read
			c := d.column(t, notNull)
			tx := d.begin(t, &sql.TxOptions{Isolation: level})
			var units int64
			if err := tx.QueryRowContext(t.Context(), `SELECT units FROM stock`).Scan(&units); err != nil {
				t.Fatal(err)
			}
			if err := c.Update(t.Context(), d, stockToken(2), "A-1", d.units(), 3); err != nil {
				t.Fatal(err)
			}
			if err := c.Update(t.Context(), tx, stockToken(1), "A-1", d.units(), units-1); !errors.Is(err, fence.ErrStale) && !mustRepeat(err) {
				t.Errorf("%v: %v", level, err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestRowKeepsTheLargestTokenOfManyWriters(t *testing.T) {
	each(t, func(t *testing.T, d *database) {
		c := d.column(t, notNull)
		var issued, written atomic.Int64
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 25 {
					n := issued.Add(1)
					switch err := c.Update(t.Context(), d, stockToken(n), "A-1", d.units()+` + units`, -1); {
					case err == nil:
						written.Add(1)
					case !errors.Is(err, fence.ErrStale):
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		if left := d.Number(t, `SELECT units FROM stock`); left != 7-written.Load() {
			t.Errorf("%d writes, %d units left of 7", written.Load(), left)
		}
		if largest := d.Number(t, `SELECT fence FROM stock`); largest != issued.Load() {
			t.Errorf("the row has token %d of %d", largest, issued.Load())
		}
	})
}
