// Package redistest runs real Redis servers for tests.
package redistest

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/lockaround/lockaround/core/internal/redisserver"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

// Server is a redis-server or valkey-server process of its own, on a free port of 127.0.0.1,
// without persistence. It ends with the test that started it. Its methods fail
// the test when they cannot do what they say, and are for one goroutine.
type Server struct {
	daemon.Test
	node *redisserver.Node
}

// Start starts a server and returns when it answers. More arguments are passed
// to redis-server as they are: "--maxmemory", "10mb".
//
// If there is no redis-server the test is skipped, or fails if the environment
// says LOCKAROUND_REQUIRE_SERVERS=1.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartIn(t, nil, args...)
}

// StartIn is Start with more in the server's environment: "NAME=value".
func StartIn(t testing.TB, env []string, args ...string) *Server {
	t.Helper()
	n, err := redisserver.Start(t.Context(), redisserver.Options{Args: args, Env: env})
	started(t, n, err)
	return of(t, n)
}

func of(t testing.TB, n *redisserver.Node) *Server {
	return &Server{Test: daemon.Test{Daemon: n.Daemon, T: t}, node: n}
}

// StartValkey is Start for a valkey-server, which takes the same arguments.
func StartValkey(t testing.TB, args ...string) *Server {
	t.Helper()
	n, err := redisserver.Start(t.Context(), redisserver.Options{Program: "valkey-server", Args: args})
	started(t, n, err)
	return of(t, n)
}

// started fails the test, or skips it, unless something was started that ends with it.
func started(t testing.TB, what interface{ Close() error }, err error) {
	t.Helper()
	if errors.Is(err, exec.ErrNotFound) {
		daemon.Missing(t, "redis-server, or valkey-server if that is asked for, in PATH", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := what.Close(); err != nil {
			t.Errorf("end a server: %v", err)
		}
	})
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return s.node.Addr() }

// Cont ends a pause, and returns when the server answers. One that was not stopped, or does
// not run, is left alone.
func (s *Server) Cont() {
	s.T.Helper()
	s.ContUntil(func() error {
		_, err := s.Do("PING") // a refusal is an answer
		return err
	})
}

// Do sends one command of words without spaces, on a connection of its own, and
// returns the first line of the answer.
func (s *Server) Do(words ...string) (string, error) { return s.node.Send(words...) }

// several are the servers of a test that belong together.
type several struct {
	t   testing.TB
	all map[*redisserver.Node]*Server
}

func newSeveral(t testing.TB, nodes redisserver.Nodes) several {
	s := several{t, map[*redisserver.Node]*Server{}}
	for _, n := range nodes {
		s.all[n] = of(t, n)
	}
	return s
}

// must fails the test if there is an error.
func (s several) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// found returns the server of a node that was found.
func (s several) found(n *redisserver.Node, err error) *Server {
	s.t.Helper()
	s.must(err)
	return s.all[n]
}
