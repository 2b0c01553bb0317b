package databases_test

import (
	"context"
	"database/sql"
	"os"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/endurance"
	"github.com/lockaround/lockaround/core/sqllock"
)

// harnesses returns what makes harnesses that reach one database, each through a proxy. Only
// the checks that lose its data have one of their own, and those that restart the server a
// server.
func (p *product) harnesses(t *testing.T, options string, notified bool) func(t *testing.T) *drivertest.Harness {
	shared := p.database(t, p.server)
	return func(t *testing.T) *drivertest.Harness { return shared.harness(t, options, notified) }
}

func (d *database) harness(t *testing.T, options string, notified bool) *drivertest.Harness {
	on := d.on
	restarts, loses := strings.Contains(t.Name(), "Restart"), strings.Contains(t.Name(), "LossOfData")
	switch {
	case restarts:
		on = d.start()
		t.Cleanup(func() {
			if err := on.Stop(); err != nil {
				t.Errorf("stop %s: %v", on.Name, err)
			}
		})
		d = d.database(t, on)
	case loses:
		d = d.database(t, on)
	}
	early := strings.Contains(t.Name(), "GivenUpAfterALostReply") // which allows for no COMMIT on a busy machine
	way := newProxy(t, on.Addr(), early)
	opts := func(addr string) (all []sqllock.Option) {
		if notified {
			all = append(all, sqllock.WithNotifications(Notifications{on.Source(addr, d.name)}))
		}
		return all
	}
	through := d.connect(t, way.Addr(), options)
	warm(t, through)
	setup := d.connect(t, on.Addr(), "")
	h := &drivertest.Harness{
		Driver:       d.locks(t, through, opts(way.Addr())...),
		Peer:         d.locks(t, d.connect(t, on.Addr(), ""), opts(on.Addr())...),
		Stall:        way.Stall,
		DelayReplies: way.DelayReplies,
		Wipe: func() {
			if !loses {
				t.Fatal("others use the database; name the check after its loss of data")
			}
			d.exec(t, `DELETE FROM lockaround_claim`, `DELETE FROM lockaround_lock`)
		},
	}
	h.Setup = func(ctx context.Context) error { return sqllock.Migrate(ctx, setup, d.dialect) }
	if options != "" {
		h.DropReply = func(op drivertest.Op) func() bool { return way.DropReply(is(op)) }
	}
	h.LosePushes = func() func() { return func() {} } // who looks by himself has none to lose
	if notified {
		h.LosePushes = way.LosePushes
	}
	if restarts {
		h.Restart = func() { on.Restart(t) }
	}
	return h
}

// warm has several connections made, so that a check whose time is short need not wait for
// one after another was cut.
func warm(t testing.TB, db *sql.DB) {
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

// TestConformanceAsTheDriverComes has statements prepared, as most of the other tests have.
// The proxy does not understand them, so that no replies are lost.
func TestConformanceAsTheDriverComes(t *testing.T) {
	if os.Getenv("LOCKAROUND_KILLING") == "" {
		t.Skip("with LOCKAROUND_KILLING, which asks for long tests")
	}
	for _, p := range products {
		t.Run(p.server.Name, func(t *testing.T) {
			t.Parallel()
			drivertest.Run(t, p.harnesses(t, "", false))
		})
	}
}

// TestEndurance has notifications where the product has them. Elsewhere nobody is woken, so
// that no wake-ups can be lost.
func TestEndurance(t *testing.T) {
	for _, p := range products {
		notified := p == products[0]
		t.Run(p.server.Name, func(t *testing.T) {
			harness := p.harnesses(t, p.options, notified)
			endurance.Run(t, func(t *testing.T) *drivertest.Harness {
				h := harness(t)
				if !notified {
					h.LosePushes = nil
				}
				return h
			})
		})
	}
}
