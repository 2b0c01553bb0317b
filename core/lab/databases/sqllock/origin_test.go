package sqllock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/sqllock"
)

// called opens the session of a process of that name.
func called(t *testing.T, d driver.Driver, identity string) driver.Session {
	t.Helper()
	s, err := d.Open(driver.Config{Sink: &sink{}, StoreTimeout: storeTimeout, Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close the session: %v", err)
		}
	})
	return s
}

func TestTablesOfAnEarlierReleaseServeUntilTheyAreMigrated(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		d.Must(t, `ALTER TABLE lockaround_claim DROP COLUMN origin`)
		before := called(t, d.locks(t, d.DB), "orders-1")
		cycle := func(s driver.Session, want string) {
			t.Helper()
			g, err := s.Acquire(t.Context(), request("stock", true))
			if err != nil {
				t.Fatal(err)
			}
			st, err := s.Inspect(t.Context(), "stock")
			if err != nil || len(st.Holders) != 1 || st.Holders[0].Identity != want || st.Holders[0].Token != g.Token {
				t.Errorf("%+v, %v; want a holder that is called %q", st, err, want)
			}
			if err := s.Release(t.Context(), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})[0]; err != nil {
				t.Error(err)
			}
		}
		cycle(before, "")
		var running sync.WaitGroup
		for range 4 {
			running.Go(func() {
				if err := sqllock.Migrate(t.Context(), d.DB, d.dialect); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
		cycle(before, "") // for a minute after it has found the column missing
		cycle(called(t, d.locks(t, d.DB), "orders-2"), "orders-2")
	})
}

// TestColumnIsAddedBesideTraffic adds it under sessions that have known the tables with it and
// without it.
func TestColumnIsAddedBesideTraffic(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		var all intervals
		processes := []*process{open(t, d.locks(t, d.DB)), open(t, d.locks(t, d.DB))}
		running.Go(func() { load(ctx, &all, processes, 2, fewKeys) })
		for range 3 {
			d.Must(t, `ALTER TABLE lockaround_claim DROP COLUMN origin`)
			if err := sqllock.Migrate(t.Context(), d.DB, d.dialect); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		running.Wait()
		all.verify(t)
	})
}
