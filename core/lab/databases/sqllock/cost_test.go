package sqllock_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/sqllock"
)

// TestRoundTripsAreFew counts the requests that pass the proxy, and compares them with the
// package's documentation.
func TestRoundTripsAreFew(t *testing.T) {
	most := map[sqllock.Dialect][4]int{
		sqllock.PostgreSQL: {2, 1, 1, 8},
		sqllock.MySQL:      {2, 3, 2, 10},
	}
	onEachDatabase(t, func(t *testing.T, d *database) {
		link := newProxy(t, d.On.Addr(), false)
		db := d.Connect(t, link.Addr(), d.options)
		openConnections(t, db)
		p := open(t, d.locks(t, db, sqllock.WithPoll(10*time.Second)))
		waiter := open(t, d.locks(t, d.DB))
		count := func(f func()) int {
			before := link.Count(requests)
			f()
			return link.Count(requests) - before
		}
		// The first use of the key inserts its row, and in any round a look of the waiter may stand
		// in the way of a statement, which is then sent again. The minimum has neither.
		few := most[d.dialect]
		got := [4]int{math.MaxInt, math.MaxInt, math.MaxInt, math.MaxInt}
		more := func() bool {
			return slices.ContainsFunc([]int{0, 1, 2, 3}, func(i int) bool { return got[i] > few[i] })
		}
		for i := 0; i < 8 || i < 100 && more(); i++ {
			var g driver.Grant
			var err error
			got[0] = min(got[0], count(func() { g, err = p.Acquire(t.Context(), request("stock", false)) }))
			if err != nil {
				t.Fatal(err)
			}
			got[2] = min(got[2], count(func() {
				err = p.Renew(t.Context(), []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: longTTL}})[0].Err
			}))
			if err != nil {
				t.Fatal(err)
			}
			next := make(chan driver.Grant, 1)
			contended := i%2 == 1
			if contended {
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
			if !contended {
				got[1] = min(got[1], n)
			} else {
				got[3] = min(got[3], n)
				if g := <-next; waiter.Release(t.Context(), []driver.Ending{ending(g)})[0] != nil {
					t.Error("the waiter was not granted the key")
				}
			}
		}
		for i, what := range []string{"acquire", "release", "renew", "release to a waiter"} {
			if got[i] > few[i] {
				t.Errorf("%s took %d round trips, more than %d", what, got[i], few[i])
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
				d := p.database(b, p.server.Shared(b))
				suites.Bench(b, func(t testing.TB) driver.Driver {
					var opts []sqllock.Option
					if notified {
						opts = append(opts, sqllock.WithNotifications(server.Notifications{Source: d.SourceAt(d.On.Addr())}))
					}
					return d.locks(t, d.Connect(t, d.On.Addr(), ""), opts...)
				})
			})
		}
	}
}
