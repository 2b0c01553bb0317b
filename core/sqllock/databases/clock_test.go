package databases_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/jumps"
	"github.com/lockaround/lockaround/core/internal/wallclock"
)

// TestTokensRiseThoughTheServersClockJumpsByAnHour leaves MariaDB out, which waits for locks
// by its wall clock: one that jumps for its process alone makes it wait for an hour, or not
// at all.
func TestTokensRiseThoughTheServersClockJumpsByAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	p := products[0]
	clock := wallclock.New(t)
	on := p.start()
	on.Env = clock.Environment()
	t.Cleanup(func() {
		if err := on.Stop(); err != nil {
			t.Errorf("stop %s: %v", on.Name, err)
		}
	})
	d := p.database(t, on)
	jumps.Run(t, 2, jumps.Store{
		Clock: clock,
		Now: func() time.Time {
			return time.Unix(d.number(t, `SELECT extract(epoch FROM clock_timestamp())::bigint`), 0)
		},
		Join:    func(t testing.TB) driver.Driver { return d.locks(t, d.connect(t, on.Addr(), "")) },
		Lasting: true,
	})
}
