package databases_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/driverbench"
	"github.com/lockaround/lockaround/core/sqllock"
)

// TestRoundTripsAreFew counts what passes the proxy, as the package's documentation
// promises it.
func TestRoundTripsAreFew(t *testing.T) {
	most := map[sqllock.Dialect][4]int{
		sqllock.PostgreSQL: {5, 6, 1, 7},
		sqllock.MySQL:      {6, 7, 2, 8},
	}
	each(t, func(t *testing.T, d *database) {
		way := newProxy(t, d.on.Addr(), false)
		db := d.connect(t, way.Addr(), d.options)
		warm(t, db)
		p := open(t, d.locks(t, db, sqllock.WithPoll(10*time.Second)))
		waiter := open(t, d.locks(t, d.DB))
		count := func(f func()) int {
			before := way.Count(requests)
			f()
			return way.Count(requests) - before
		}
		// The first use of the key makes its row, and a look may fall into any of them. Others
		// have neither.
		got := [4]int{math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt}
		for i := range 8 {
			var g driver.Grant
			var err error
			got[0] = min(got[0], count(func() { g, err = p.Acquire(t.Context(), request("stock", false)) }))
			if err != nil {
				t.Fatal(err)
			}
			got[2] = min(got[2], count(func() {
				err = p.Renew(t.Context(), []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: hold}})[0].Err
			}))
			if err != nil {
				t.Fatal(err)
			}
			next := make(chan driver.Grant, 1)
			wanted := i%2 == 1
			if wanted {
				go func() {
					g, _ := waiter.Acquire(t.Context(), request("stock", true))
					next <- g
				}()
				<-waiter.queued
			}
			n := count(func() { err = p.Release(t.Context(), []driver.Ending{ending(g)})[0] })
			if err != nil {
				t.Fatal(err)
			}
			if !wanted {
				got[1] = min(got[1], n)
			} else {
				got[3] = min(got[3], n)
				if g := <-next; waiter.Release(t.Context(), []driver.Ending{ending(g)})[0] != nil {
					t.Error("the waiter was not granted the key")
				}
			}
		}
		for i, what := range []string{"acquire", "release", "renew", "release to a waiter"} {
			if got[i] > most[d.dialect][i] {
				t.Errorf("%s took %d round trips, more than %d", what, got[i], most[d.dialect][i])
			}
		}
		t.Logf("round trips: acquire %d, release %d, renew %d, release to a waiter %d", got[0], got[1], got[2], got[3])
	})
}

func BenchmarkDriver(b *testing.B) {
	for _, p := range products {
		for _, notified := range []bool{false, true} {
			if notified && p.dialect != sqllock.PostgreSQL {
				continue
			}
			b.Run(fmt.Sprintf("%s/notified=%v", p.server.Name, notified), func(b *testing.B) {
				d := p.database(b, p.server)
				driverbench.Run(b, func(t testing.TB) driver.Driver {
					var opts []sqllock.Option
					if notified {
						opts = append(opts, sqllock.WithNotifications(Notifications{d.on.Source(d.on.Addr(), d.name)}))
					}
					return d.locks(t, d.connect(t, d.on.Addr(), ""), opts...)
				})
			})
		}
	}
}
