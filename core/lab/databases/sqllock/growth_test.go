package sqllock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/sqllock"
)

// expireRetention makes all unused rows old enough to be purged.
func (d *database) expireRetention(t testing.TB) {
	t.Helper()
	d.Must(t, `UPDATE lockaround_lock SET keep_us = 1 WHERE lock_key <> ''`, `UPDATE lockaround_row SET created_us = 1`)
}

func (d *database) purge(t testing.TB) int {
	t.Helper()
	n, err := sqllock.Purge(t.Context(), d.DB, d.dialect)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTablesAreSmallAfterAThousandKeysAndTokensGoOn(t *testing.T) {
	if testing.Short() {
		t.Skip("locks a thousand keys")
	}
	const keys = 1000
	onEachDatabase(t, func(t *testing.T, d *database) {
		p := open(t, d.locks(t, d.DB))
		var last int64
		for i := range keys {
			g, err := p.Acquire(t.Context(), request(fmt.Sprint("order ", i), false))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
				t.Fatal(err)
			}
		}
		// MySQL's claims that were released are deleted together, a little later.
		eventually(t, "no claim being left of leases that were released", func() bool {
			return d.Number(t, `SELECT count(*) FROM lockaround_claim`) == 0
		})
		// One of the keys was granted while the clock was ahead by an hour.
		d.Must(t, `UPDATE lockaround_lock SET token = token + 3600000000 WHERE lock_key = 'order 7'`)
		last = d.Number(t, `SELECT token FROM lockaround_lock WHERE lock_key = 'order 7'`)
		d.expireRetention(t)
		if n := d.purge(t); n < keys {
			t.Errorf("the purge removed %d rows of %d", n, keys)
		}
		if n := d.Number(t, `SELECT count(*) FROM lockaround_lock`); n > 1 {
			t.Errorf("%d rows are left of %d keys", n, keys)
		}
		g, err := p.Acquire(t.Context(), request("order 7", false))
		if err != nil || g.Token <= last {
			t.Errorf("after its row was removed the key's token is %d, and was %d: %v", g.Token, last, err)
		}
		if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
			t.Error(err)
		}
	})
}

// TestTablesGrowWithTheKeysOfTheLastMinutes locks 1,000 new keys a second. A row stays for a minute, and the
// sweep of so many takes some time.
func TestTablesGrowWithTheKeysOfTheLastMinutes(t *testing.T) {
	seconds := counts.Of(t, "growing", 0, 0)
	if seconds == 0 {
		t.Skip("takes minutes: set " + counts.Asks("growing", 600))
	}
	for _, product := range products {
		t.Run(product.server.Name, func(t *testing.T) {
			d := product.database(t, product.server.Shared(t))
			p := open(t, d.locks(t, d.DB))
			var next atomic.Int64
			lock := func() {
				r := request(fmt.Sprint("order ", next.Add(1)), false)
				r.TTL = 10 * time.Second // a row stays for as long
				g, err := p.Acquire(t.Context(), r)
				if err == nil {
					err = p.Release(t.Context(), []driver.Ending{ending(g)})[0]
				}
				if err != nil {
					t.Error(err)
				}
			}
			rows := func() int64 { return d.Number(t, `SELECT count(*) FROM lockaround_lock`) }
			began, most := time.Now(), int64(0)
			for second := range seconds {
				var callers sync.WaitGroup
				for range 16 {
					callers.Go(func() {
						for n := 0; n < 1000/16 && time.Since(began) < time.Duration(second+1)*time.Second; n++ {
							lock()
						}
					})
				}
				callers.Wait()
				time.Sleep(time.Until(began.Add(time.Duration(second+1) * time.Second)))
				if second%30 == 29 {
					n := rows()
					most = max(most, n)
					t.Logf("after %d s: %d keys, %d rows", second+1, next.Load(), n)
				}
			}
			if perMinute := next.Load() * 60 / int64(seconds); most > 3*perMinute {
				t.Errorf("the tables had up to %d rows, with %d new keys a minute", most, perMinute)
			}
			time.Sleep(time.Minute) // for which rows stay
			eventually(t, "nothing being left of keys that were used minutes ago", func() bool { return rows() <= 1 })
		})
	}
}

func TestPurgeRemovesWhatCrashedProcessesLeft(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		p := open(t, d.locks(t, d.DB))
		held, err := p.Acquire(t.Context(), request("held", false))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if _, err := p.Acquire(t.Context(), request(fmt.Sprint("crashed ", i), false)); err != nil {
				t.Fatal(err)
			}
		}
		d.Must(t, `UPDATE lockaround_claim SET expires_us = 1 WHERE lock_key <> 'held'`)
		if d.dialect == sqllock.MySQL { // some had been released
			d.Must(t, `UPDATE lockaround_claim SET expires_us = 0 WHERE lock_key IN ('crashed 7', 'crashed 8')`)
		}
		d.purge(t)
		if n := d.Number(t, `SELECT count(*) FROM lockaround_claim`); n != 1 {
			t.Errorf("%d claims are there, of which 1 is alive", n)
		}
		if err := p.Release(t.Context(), []driver.Ending{ending(held)})[0]; err != nil {
			t.Errorf("the lease that was alive: %v", err)
		}
	})
}

func TestPurgeBesideUsersLetsNobodyInTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	onEachDatabase(t, func(t *testing.T, d *database) {
		var processes []*process
		for range 2 {
			processes = append(processes, open(t, d.locks(t, d.Connect(t, d.On.Addr(), ""))))
		}
		var all intervals
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() { load(ctx, &all, processes, 3, fewKeys) })
		purged, began := 0, time.Now()
		for time.Since(began) < 1500*time.Millisecond || all.len() < 10 && time.Since(began) < patience {
			if _, err := d.ExecContext(t.Context(), `UPDATE lockaround_lock SET keep_us = 1 WHERE lock_key <> ''`); err != nil {
				continue // a deadlock of this UPDATE with decisions
			}
			n, err := sqllock.Purge(t.Context(), d.DB, d.dialect)
			if err != nil {
				t.Error(err)
			}
			purged += n
		}
		cancel()
		running.Wait()
		d.waitUntilEmpty(t)
		n := all.verify(t)
		if n < 10 {
			t.Errorf("%d leases were granted, so nothing was tested", n)
		}
		t.Logf("%d leases beside %d rows removed", n, purged)
	})
}
