package databases_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/jumps"
	"github.com/lockaround/lockaround/core/internal/wallclock"
)

// TestTokensRiseThoughTheServersClockJumpsByAnHour does not run on MariaDB, whose lock waits
// use its wall clock. If the clock jumps for the server alone, it waits for an hour, or not
// at all.
func TestTokensRiseThoughTheServersClockJumpsByAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	p := products[0]
	clock := wallclock.New(t)
	srv := p.newServer()
	srv.Env = clock.Environment()
	t.Cleanup(func() {
		if err := srv.Stop(); err != nil {
			t.Errorf("stop %s: %v", srv.Name, err)
		}
	})
	d := p.database(t, srv)
	jumps.Run(t, 2, jumps.Store{
		Clock: clock,
		Now: func() time.Time {
			return time.Unix(d.number(t, `SELECT extract(epoch FROM clock_timestamp())::bigint`), 0)
		},
		Join:    func(t testing.TB) driver.Driver { return d.locks(t, d.connect(t, srv.Addr(), "")) },
		Lasting: true,
	})
}
