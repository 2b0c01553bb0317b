// Package redisserver starts the Redis servers that tests below decorator run on.
package redisserver

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Server is a redis-server without persistence that ends with the test.
type Server struct {
	Network, Addr string // as a client is told them

	t    testing.TB
	args []string
	stop func()
}

// Start starts a server on a Unix socket, with more arguments if there are some. It can always
// have a socket; a port may be taken by somebody's connection meanwhile.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis") // short, as a socket's path has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "socket")
	return StartAt(t, "unix", socket, append(args, "--port", "0", "--unixsocket", socket)...)
}

// StartAt starts a server with arguments that let it listen at that address.
func StartAt(t testing.TB, network, addr string, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	s := &Server{Network: network, Addr: addr, t: t, args: append(args, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

// Restart kills the server and starts it again, empty.
func (s *Server) Restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// start returns when the server accepts connections.
func (s *Server) start() {
	s.t.Helper()
	cmd := exec.Command("redis-server", s.args...)
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		s.t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	s.stop = func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-drained
		_ = cmd.Wait() // reports the kill
	}
	if err := lines.Err(); err != nil || lines.Text() == "" {
		s.stop()
		s.t.Fatalf("redis-server ended at once: %v", err)
	}
}
