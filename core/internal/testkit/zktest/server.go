// Package zktest runs real ZooKeeper servers for tests, and a proxy that does to
// their connections what networks do.
package zktest

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
	"github.com/lockaround/lockaround/core/internal/testkit/ensemble"
)

// Server is a ZooKeeper server of its own, on a free port of 127.0.0.1, with ticks of
// 100 ms. It ends with the test that started it. Its methods fail the test when they
// cannot do what they say, and are for one goroutine.
type Server struct {
	daemon.Test
	member *ensemble.Member
}

// Empty containers are looked for every second. Who has said nothing yet is not sent away:
// whether a client gives up a silent handshake is seen.
var zookeeper = ensemble.ZooKeeper{
	Settings:   "tickTime=100\ninitLimit=100\nsyncLimit=20\nminSessionTimeout=200\nmaxSessionTimeout=1000000",
	Properties: []string{"-Dznode.container.checkIntervalMs=1000", "-Dzookeeper.nio.sessionlessCnxnTimeout=600000"},
}

// Start starts a server and returns when it answers, and warm has asked it for a little of
// everything: what it does for the first time takes long on a busy machine, and is not to be taken
// for silence by a test.
//
// If there is no ZooKeeper the test is skipped, or fails if the environment says
// LOCKAROUND_REQUIRE_SERVERS=1.
func Start(t testing.TB, warm func(addr string) error) *Server {
	t.Helper()
	return StartEnsemble(t, 1, warm)[0]
}

// StartEnsemble starts an ensemble of n servers and returns when all serve. It is like [Start]
// otherwise.
func StartEnsemble(t testing.TB, n int, warm func(addr string) error) (all []*Server) {
	t.Helper()
	z := zookeeper
	z.Warm = warm
	members, err := z.Start(t.Context(), t.TempDir(), n)
	if errors.Is(err, exec.ErrNotFound) {
		daemon.Missing(t, "Debian's package zookeeper, and java", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range members {
		s := &Server{daemon.Test{Daemon: m.Daemon, T: t}, m}
		t.Cleanup(s.Kill)
		all = append(all, s)
	}
	return all
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return s.member.Addr }

// Mode returns what the server is: standalone, leader, follower, or "" if it does not
// serve.
func (s *Server) Mode() string { return s.member.Mode() }
