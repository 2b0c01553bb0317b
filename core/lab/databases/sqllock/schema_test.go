package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/sqllock"
)

func TestTablesAreCreatedByAnyNumberOfProcessesAtOnce(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		d.Must(t, `DROP TABLE lockaround_lock`, `DROP TABLE lockaround_claim`, `DROP TABLE lockaround_row`)
		var running sync.WaitGroup
		for range 8 {
			running.Go(func() {
				if err := sqllock.Migrate(t.Context(), d.DB, d.dialect); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		if err := open(t, d.locks(t, d.DB)).Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestIndexThatIsMissingIsCreatedBesideTraffic(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		if d.dialect != sqllock.PostgreSQL {
			t.Skip("an index is created with its table")
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var all intervals
		processes := []*process{open(t, d.locks(t, d.DB)), open(t, d.locks(t, d.DB))}
		running.Go(func() { load(ctx, &all, processes, 2, fewKeys) })
		for range 5 {
			d.Must(t, `DROP INDEX lockaround_claim_session`)
			if err := sqllock.Migrate(t.Context(), d.DB, d.dialect); err != nil {
				t.Fatal(err)
			}
			if d.Number(t, `SELECT COUNT(*) FROM pg_indexes WHERE indexname = 'lockaround_claim_session'`) != 1 {
				t.Fatal("the index is not there")
			}
		}
		cancel()
		running.Wait()
		all.verify(t)
	})
}

func TestMissingTablesAreAPermanentErrorThatSaysSo(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		p := open(t, d.locks(t, d.DB))
		for _, table := range []string{"lockaround_row", "lockaround_claim", "lockaround_lock"} {
			d.Must(t, `DROP TABLE `+table)
			var refused *driver.PermanentError
			if err := p.Ping(t.Context()); !errors.As(err, &refused) || !strings.Contains(err.Error(), "Migrate") {
				t.Errorf("without %s: %v", table, err)
			}
		}
		var refused *driver.PermanentError
		if _, err := p.Acquire(t.Context(), request("stock", false)); !errors.As(err, &refused) {
			t.Errorf("acquire without tables: %v", err)
		}
	})
}

func TestDialectOfAnotherDatabaseIsRefusedByPing(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		other := map[sqllock.Dialect]sqllock.Dialect{sqllock.PostgreSQL: sqllock.MySQL, sqllock.MySQL: sqllock.PostgreSQL}[d.dialect]
		locks, err := sqllock.New(d.DB, other)
		if err != nil {
			t.Fatal(err)
		}
		var refused *driver.PermanentError
		if err := open(t, locks).Ping(t.Context()); !errors.As(err, &refused) {
			t.Errorf("a ping in another dialect: %v", err)
		}
	})
}
