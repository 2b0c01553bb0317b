// Package etcdtest runs real etcd servers for tests.
package etcdtest

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
	"github.com/lockaround/lockaround/core/internal/testkit/ensemble"
)

// Server is an etcd process of its own, on free ports of 127.0.0.1. It ends with the
// test that started it. Its methods fail the test when they cannot do what they say, and
// are for one goroutine.
type Server struct {
	daemon.Test
	member *ensemble.Member
}

// Start starts a cluster of one and returns when it answers.
//
// If there is no etcd the test is skipped, or fails if the environment says
// LOCKAROUND_REQUIRE_SERVERS=1.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartCluster(t, 1)[0]
}

// StartCluster starts a cluster of n members and returns when each answers. It is like
// [Start] otherwise.
func StartCluster(t testing.TB, n int) (all []*Server) {
	t.Helper()
	members, err := ensemble.StartEtcd(t.Context(), t.TempDir(), n)
	if errors.Is(err, exec.ErrNotFound) {
		daemon.Missing(t, "etcd in PATH", err)
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

// Addr returns the host and port for clients.
func (s *Server) Addr() string { return s.member.Addr }

// Cont ends a pause, and returns when the server answers, be it without a leader. One that
// was not stopped is left alone.
func (s *Server) Cont() {
	s.T.Helper()
	s.ContUntil(s.member.Answers)
}

// Client returns a client of the servers with those addresses, which is closed when the
// test ends.
func Client(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: addrs, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 30 * time.Second, Logger: zap.NewNop(),
	})
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}
