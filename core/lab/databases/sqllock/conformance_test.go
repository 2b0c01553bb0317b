package sqllock_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/drivertest/endurance"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/sqllock"
)

// harnesses returns a function that makes harnesses. They share one database, and each has a
// proxy of its own. Checks that lose data have a database of their own, and those that
// restart the server have a server of their own.
func (p *product) harnesses(t *testing.T, options string, notified bool) func(t *testing.T) *drivertest.Harness {
	shared := p.database(t, p.server.Shared(t))
	return func(t *testing.T) *drivertest.Harness { return shared.harness(t, options, notified) }
}

func (d *database) harness(t *testing.T, options string, notified bool) *drivertest.Harness {
	srv := d.On
	has := func(word string) bool { return strings.Contains(t.Name(), word) }
	restarts, loses, refuses := has("Restart"), has("LossOfData"), has("StoresRefusal")
	switch {
	case restarts, refuses && d.dialect == sqllock.MySQL:
		srv = d.server.Own(t)
		d = d.database(t, srv)
	case loses, refuses:
		d = d.database(t, srv)
	}
	early := has("GivenUpAfterALostReply") // on a busy machine its COMMIT may never be sent
	link := newProxy(t, srv.Addr(), early)
	opts := func(addr string) (all []sqllock.Option) {
		if notified {
			all = append(all, sqllock.WithNotifications(server.Notifications{Source: d.SourceAt(addr)}))
		}
		return all
	}
	through := d.Connect(t, link.Addr(), options)
	openConnections(t, through)
	setup := d.Connect(t, srv.Addr(), "")
	h := &drivertest.Harness{
		Driver:       d.locks(t, through, opts(link.Addr())...),
		Peer:         d.locks(t, d.Connect(t, srv.Addr(), ""), opts(srv.Addr())...),
		Stall:        link.Stall,
		DelayReplies: link.DelayReplies,
		Wipe: func() {
			if !loses {
				t.Fatal("others use the database; name the check after its loss of data")
			}
			d.Must(t, `DELETE FROM lockaround_claim`, `DELETE FROM lockaround_lock`)
		},
	}
	h.Setup = func(ctx context.Context) error { return sqllock.Migrate(ctx, setup, d.dialect) }
	if options != "" {
		h.DropReply = func(op drivertest.Op) func() bool { return link.DropReply(matches(op)) }
	}
	h.LosePushes = func() func() { return func() {} } // sessions that only poll have none to lose
	if notified || d.dialect == sqllock.MySQL && options != "" {
		h.LosePushes = link.LosePushes
	}
	if refuses {
		h.Refuse = func() (string, func()) { return d.refuse(t) }
	}
	if restarts {
		h.Restart = func() { srv.Stop(); srv.Restart() }
	}
	return h
}

// openConnections fills the pool, so that a short check need not wait for new connections
// after one was cut.
func openConnections(t testing.TB, db *sql.DB) {
	t.Helper()
	var conns [4]*sql.Conn
	for i := range conns {
		c, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c
	}
	for _, c := range conns {
		if err := c.Close(); err != nil { // it goes back to the pool
			t.Fatal(err)
		}
	}
}

func TestConformance(t *testing.T) {
	for _, p := range products {
		t.Run(p.server.Name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, p.harnesses(t, p.options, false))
		})
	}
}

func TestConformanceWithNotifications(t *testing.T) {
	drivertest.Run(t, products[0].harnesses(t, products[0].options, true))
}

// TestConformanceAsTheDriverComes uses prepared statements, as most of the other tests do.
// The proxy does not understand them, so no replies are lost.
func TestConformanceAsTheDriverComes(t *testing.T) {
	if counts.Of(t, "prepared", 0, 0) == 0 {
		t.Skip("takes minutes: set " + counts.Asks("prepared", 1))
	}
	for _, p := range products {
		t.Run(p.server.Name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, p.harnesses(t, "", false))
		})
	}
}

// TestEndurance uses notifications where the product has them.
func TestEndurance(t *testing.T) {
	if testing.Short() {
		t.Skip("works for seconds without a pause")
	}
	for _, p := range products {
		notified := p == products[0]
		t.Run(p.server.Name, func(t *testing.T) {
			harness := p.harnesses(t, p.options, notified)
			endurance.Run(t, harness)
		})
	}
}
