// Package zktest has the ZooKeeper servers of this module's tests, and a proxy that does to
// their connections what networks do.
package zktest

import (
	"testing"

	"github.com/lockaround/lockaround/core/testservers"
)

// Start starts a server with ticks of 100 ms and returns when it answers, and warm has asked it for
// a little of everything.
func Start(t testing.TB, warm func(addr string) error) *testservers.Server {
	t.Helper()
	return StartEnsemble(t, 1, warm)[0]
}

// StartEnsemble starts an ensemble of n servers and returns when all serve. It is like [Start]
// otherwise.
func StartEnsemble(t testing.TB, n int, warm func(addr string) error) []*testservers.Server {
	t.Helper()
	// Empty containers are looked for every second. Who has said nothing yet is not sent away:
	// whether a client gives up a silent handshake is seen.
	all := testservers.ZooKeeperEnsemble(t, n, "tickTime=100", "initLimit=100", "syncLimit=20", "minSessionTimeout=200", "maxSessionTimeout=1000000",
		"-Dznode.container.checkIntervalMs=1000", "-Dzookeeper.nio.sessionlessCnxnTimeout=600000")
	for _, s := range all {
		s.ReadyWhen(func() error { return warm(s.Addr()) })
	}
	return all
}
