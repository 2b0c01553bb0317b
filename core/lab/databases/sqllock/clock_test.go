package sqllock_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestTokensRiseThoughTheServersClockJumpsByAnHour does not run on MariaDB, whose lock waits
// use its wall clock. If the clock jumps for the server alone, it waits for an hour, or not
// at all.
func TestTokensRiseThoughTheServersClockJumpsByAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a clock, and restarts servers")
	}
	p := products[0]
	srv := testservers.PostgreSQLWithClock(t)
	d := p.database(t, srv)
	suites.Jumps(t, 2, suites.Clocked{
		Server: srv,
		Now: func() time.Time {
			return time.Unix(d.Number(t, `SELECT extract(epoch FROM clock_timestamp())::bigint`), 0)
		},
		Join:    func(t testing.TB) driver.Driver { return d.locks(t, d.Connect(t, srv.Addr(), "")) },
		Lasting: true,
	})
}
