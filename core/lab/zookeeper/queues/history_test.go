package queues_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/decorator/serial/serialtest"
)

// restartOneIn is how seldom the server is killed in place of cutting its connections.
const restartOneIn = 5

// TestHistoryOverProcessesAndRestarts runs 400 items, or as many as LOCKAROUND_COUNTS says, by processes that
// are killed, stopped and cut off from a server that is killed and started again. Locks and queue
// are in ZooKeeper. In the spaced form it is a tenth of them.
func TestHistoryOverProcessesAndRestarts(t *testing.T) {
	items := counts.Of(t, "items", 400, 100_000)
	for name, tt := range map[string]struct {
		spacing    time.Duration
		keys, each int
	}{
		"many keys": {0, max(items/200, 4), min(items/4, 200)},
		"spaced":    {20 * time.Millisecond, max(items/250, 4), 25},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("starts a server of its own")
			}
			srv := zktest.Start(t, warm)
			link := zktest.NewProxy(t, srv.Addr())
			p := own(t, link.Addr())
			restarts := 0
			serialtest.Run(t, serialtest.History{
				Plan: serialtest.Plan{Store: link.Addr(), TTL: 2 * time.Second, Takes: 2 * time.Millisecond, Fails: 50, Spacing: tt.spacing},
				Keys: tt.keys, Each: tt.each, Locks: p.locks, Queues: p.store,
				Start: func(t testing.TB, plan serialtest.Plan) serialtest.Process { return start(t, historyRole, plan) },
				Faults: []serialtest.Fault{{Name: "cuts of all connections, or kills of the server", Cause: func() {
					if rand.IntN(restartOneIn) > 0 {
						link.Cut()
						return
					}
					srv.Restart() // which takes long
					restarts++
				}}},
			})
			t.Logf("%d of the cuts were kills of the server", restarts)
		})
	}
}
