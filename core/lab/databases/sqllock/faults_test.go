package sqllock_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/sqllock"
)

// waitUntilEmpty waits until there are no claims, long before a lease would have ended by
// itself. Its connections may have been killed, and then fail once each.
func (d *database) waitUntilEmpty(t testing.TB) {
	t.Helper()
	eventually(t, "the end of all claims", func() bool {
		var n int
		err := d.QueryRowContext(context.WithoutCancel(t.Context()), `SELECT count(*) FROM lockaround_claim`).Scan(&n)
		return err == nil && n == 0
	})
}

// TestKilledConnectionsLetNobodyInTwiceAndLeaveNothing kills connections for at least 2 s,
// or for a minute if full counts are asked for, or as long as LOCKAROUND_COUNTS says of
// killing.
func TestKilledConnectionsLetNobodyInTwiceAndLeaveNothing(t *testing.T) {
	duration := counts.Time(t, "killing", 2*time.Second, time.Minute)
	onEachDatabase(t, func(t *testing.T, d *database) {
		var processes []*process
		for range 3 {
			pool := d.Connect(t, d.On.Addr(), "")
			var opts []sqllock.Option
			if d.dialect == sqllock.PostgreSQL && len(processes) == 0 { // one session listens, the others poll
				opts = append(opts, sqllock.WithNotifications(server.Notifications{Source: d.SourceAt(d.On.Addr())}))
			}
			processes = append(processes, open(t, d.locks(t, pool, opts...)))
		}
		var all intervals
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var running sync.WaitGroup
		running.Go(func() { load(ctx, &all, processes, 4, fewKeys) })
		killed, began := 0, time.Now()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for time.Since(began) < duration || (killed == 0 || all.len() < 10) && time.Since(began) < patience {
			<-tick.C
			killed += d.killSome(t)
		}
		cancel()
		running.Wait()
		over := time.Now()
		d.waitUntilEmpty(t)
		n := all.verify(t)
		if killed == 0 || counts.Full(t) && killed < 100 || n < 10 {
			t.Errorf("%d connections were killed and %d leases granted, so nothing was tested", killed, n)
		}
		t.Attr("figure-19", fmt.Sprintf("%d connections killed in %v, %d leases, no overlap, tokens rise, no row left %v after the load", killed, duration, n, time.Since(over).Round(time.Millisecond)))
	})
}

// killSome kills about a third of the database's connections, and returns how many.
func (d *database) killSome(t testing.TB) (n int) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	conn, err := d.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	rows, err := conn.QueryContext(ctx, d.others)
	if err != nil {
		return 0 // a previous call has killed this connection
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if rows.Err() != nil {
		return 0 // as above
	}
	for _, id := range ids {
		if rand.IntN(3) == 0 {
			if _, err := conn.ExecContext(ctx, fmt.Sprintf(d.kill, id)); err == nil { // otherwise it has ended by itself
				n++
			}
		}
	}
	return n
}

func TestLostRepliesOfCommitsGrantAndEndOnce(t *testing.T) {
	const rounds = 20
	onEachDatabase(t, func(t *testing.T, d *database) {
		link := newProxy(t, d.On.Addr(), false)
		p := open(t, d.locks(t, d.Connect(t, link.Addr(), d.options)))
		other := open(t, d.locks(t, d.DB))
		for round := range rounds {
			dropped := link.DropReply(matches(drivertest.OpAcquire))
			g, err := p.Acquire(t.Context(), request("stock", false))
			if err != nil || !dropped() {
				t.Fatalf("round %d: acquire: %v; a reply was lost: %v", round, err, dropped())
			}
			if n := d.Number(t, `SELECT count(*) FROM lockaround_claim WHERE expires_us > 0`); n != 1 { // others are spent
				t.Fatalf("round %d: there are %d claims, not 1", round, n)
			}
			dropped = link.DropReply(matches(drivertest.OpRelease))
			if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil || !dropped() {
				t.Fatalf("round %d: release: %v; a reply was lost: %v", round, err, dropped())
			}
			next, err := other.Acquire(t.Context(), request("stock", false))
			if err != nil || next.Token <= g.Token {
				t.Fatalf("round %d: the next one got token %d after %d, %v", round, next.Token, g.Token, err)
			}
			if err := other.Release(t.Context(), []driver.Ending{ending(next)})[0]; err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestRestartedServerKeepsLeasesAndQueues(t *testing.T) {
	t.Parallel()
	for _, p := range products {
		t.Run(p.server.Name, func(t *testing.T) {
			t.Parallel()
			srv := p.server.Own(t)
			d := p.database(t, srv)
			a := open(t, d.locks(t, d.Connect(t, srv.Addr(), "")))
			b := open(t, d.locks(t, d.Connect(t, srv.Addr(), "")))
			held, err := a.Acquire(t.Context(), request("stock", false))
			if err != nil {
				t.Fatal(err)
			}
			type result struct {
				g   driver.Grant
				err error
			}
			next := make(chan result, 1)
			go func() {
				var r result
				for {
					r.g, r.err = b.Acquire(t.Context(), request("stock", true))
					if r.err != driver.ErrPlaceLost { // the restart took too long; the engine requests again
						break
					}
				}
				next <- r
			}()
			<-b.queued
			srv.Stop()
			srv.Restart()
			if r := a.Renew(t.Context(), []driver.Renewal{{ID: held.ID, Token: held.Token, TTL: longTTL}})[0]; r.Err != nil {
				t.Errorf("renew after the restart: %v", r.Err)
			}
			if err := a.Release(t.Context(), []driver.Ending{ending(held)})[0]; err != nil {
				t.Errorf("release after the restart: %v", err)
			}
			r := <-next
			if r.err != nil || r.g.Token <= held.Token {
				t.Fatalf("the waiter got token %d after %d, %v", r.g.Token, held.Token, r.err)
			}
			if err := b.Release(t.Context(), []driver.Ending{ending(r.g)})[0]; err != nil {
				t.Error(err)
			}
			d.waitUntilEmpty(t)
		})
	}
}

// countingConnector counts the connections that it makes.
type countingConnector struct {
	sqldriver.Connector
	made atomic.Int64
}

func (c *countingConnector) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c.made.Add(1)
	return c.Connector.Connect(ctx)
}

// TestCallersWhoGiveUpBreakNoConnections makes many callers give up while they wait for a
// row. Client libraries close the connection of a statement whose context ends, and a new
// connection costs the server more than the statements that use it. So there must not be one
// for each of these callers.
func TestCallersWhoGiveUpBreakNoConnections(t *testing.T) {
	onEachDatabase(t, func(t *testing.T, d *database) {
		connector, err := d.Driver().(sqldriver.DriverContext).OpenConnector(d.SourceAt(d.On.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		c := &countingConnector{Connector: connector}
		db := sql.OpenDB(c)
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		p := open(t, d.locks(t, db))
		g, err := p.Acquire(t.Context(), request("stock", false))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
			t.Fatal(err)
		}
		const rounds, callers = 20, 20
		for range rounds {
			tx, err := d.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), `SELECT 1 FROM lockaround_lock WHERE lock_key = 'stock' FOR UPDATE`); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // while the statements wait for the row
			var asking sync.WaitGroup
			for range callers {
				asking.Go(func() {
					if _, err := p.Acquire(ctx, request("stock", true)); err == nil {
						t.Error("a key was granted whose row is locked")
					}
				})
			}
			asking.Wait()
			cancel()
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d connections were made", c.made.Load())
		if made := c.made.Load(); made > rounds/2 { // the machine may stall for longer than statementGrace
			t.Errorf("%d connections were made for %d callers who gave up", made, rounds*callers)
		}
	})
}
