package testservers

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Server is one process. It ends with the test that started it, unless it is [Shared]. Its methods
// fail the test when they cannot do what they say, and are for one goroutine.
type Server struct {
	tb       testing.TB
	s        *servers.Server
	node     *servers.Node     // of Redis, and nil otherwise
	database *servers.Database // nil if it is none
}

// Addr returns the host and port for clients. It stays the same.
func (s *Server) Addr() string { return s.s.Addr() }

// Version returns product and version, as in "Redis 7.0.15".
func (s *Server) Version() string { return s.s.Version }

// Pid returns the number of the process.
func (s *Server) Pid() int { return s.s.Pid() }

// Log returns all that the server has printed so far.
func (s *Server) Log() string {
	s.tb.Helper()
	text, err := os.ReadFile(s.s.Log)
	s.must("read the log of", err)
	return string(text)
}

// Kill ends the server with SIGKILL and returns when it is gone and its addresses are free.
// Killing it twice is a no-op.
func (s *Server) Kill() {
	s.tb.Helper()
	if err := s.s.Kill(); err != nil {
		s.tb.Errorf("kill %s: %v", s.s, err)
	}
}

// Stop ends the server in good order, and returns when it is gone. What keeps nothing, or loses
// nothing by it, is killed. Stopping it twice is a no-op.
func (s *Server) Stop() {
	s.tb.Helper()
	s.must("stop", s.s.Retire())
}

// Restart starts the server again at the same address, after killing it if it still runs, and
// returns when it answers. It has what was in its files: Redis and Valkey nothing, unless their
// arguments say so, and the others all that they have acknowledged.
func (s *Server) Restart() {
	s.tb.Helper()
	s.must("restart", s.s.Restart(context.WithoutCancel(s.tb.Context())))
}

// Pause stops the server with SIGSTOP: connections stay, nothing answers.
func (s *Server) Pause() {
	s.tb.Helper()
	s.must("pause", s.s.Stop())
}

// Resume ends a pause, and returns when the server answers. One that was not paused, or does not
// run, is left alone.
func (s *Server) Resume() {
	s.tb.Helper()
	s.must("resume", s.s.Resume(context.WithoutCancel(s.tb.Context())))
}

// ReadyWhen returns when asks returns nil, and asks whenever the server has started again:
// what a server does for the first time may take long, and is not to be taken for a fault by a test.
func (s *Server) ReadyWhen(asks func() error) {
	s.tb.Helper()
	before := s.s.Ready
	s.s.Ready = func() error {
		if err := before(); err != nil {
			return err
		}
		return asks()
	}
	s.must("await", s.s.Await(s.tb.Context(), s.s.Ready))
}

// Jump sets the wall clock of a server that was started with one, such as [RedisWithClock]: forward,
// or back if by is negative, by whole seconds from what it is. It stays so, also over a restart.
func (s *Server) Jump(by time.Duration) {
	s.tb.Helper()
	s.must("set the clock of", s.s.Jump(by))
}

// Ahead returns by how much [Server.Jump] has set the server's clock forward so far.
func (s *Server) Ahead() time.Duration {
	ahead, _ := s.s.Clock()
	return ahead
}

// Do sends one command to a Redis or Valkey server, on a connection of its own, and returns the
// answer as text: what is a list has a line for each of its parts, and nil is empty. The error is the
// server's, beginning with its first word such as "OOM", or that of the connection; after ten seconds
// it is given up.
func (s *Server) Do(words ...string) (string, error) {
	s.tb.Helper()
	if s.node == nil {
		s.tb.Fatalf("%s takes no commands of Redis", s.s)
	}
	return s.node.Say(context.WithoutCancel(s.tb.Context()), words...)
}

// Mode returns what a ZooKeeper server is now: standalone, leader, follower, or "" if it does not
// serve.
func (s *Server) Mode() string { return s.s.Mode() }

// Source returns the data source of a database of a PostgreSQL or MariaDB server, for database/sql's
// drivers pgx and mysql. An empty name is the database that there is from the start. The user is root,
// who has no password.
func (s *Server) Source(database string) string {
	s.tb.Helper()
	if s.database == nil {
		s.tb.Fatalf("%s has no databases", s.s)
	}
	return s.database.Source(s.Addr(), database)
}

func (s *Server) must(what string, err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("%s %s: %v", what, s.s, err)
	}
}
