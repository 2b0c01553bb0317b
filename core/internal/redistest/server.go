// Package redistest runs real Redis servers for tests.
package redistest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/process"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

// Server is a redis-server process of its own, on a free port of 127.0.0.1,
// without persistence. It ends with the test that started it. Its methods fail
// the test when they cannot do what they say, and are for one goroutine.
type Server struct {
	daemon.Test
	port string
	bus  string // the port of a Cluster's node for the others; empty without one
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
	return start(t, env, inMemory, args, false)
}

var inMemory = []string{"--save", "", "--appendonly", "no"}

// start starts a server, which is a node of a Cluster if it has a bus. Its address comes
// between args and more.
func start(t testing.TB, env, args, more []string, bus bool) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		daemon.Missing(t, "redis-server in PATH", err)
	}
	folder := t.TempDir()
	s := &Server{Test: daemon.Test{Daemon: &daemon.Daemon{}, T: t}}
	t.Cleanup(s.Kill)
	// Free ports may be taken by somebody else before the server has them.
	var err error
	for range 5 {
		ports, none := process.FreePorts(2)
		if none != nil {
			t.Fatal(none)
		}
		s.port = ports[0]
		words := slices.Concat(args, []string{"--dir", folder, "--port", s.port, "--bind", "127.0.0.1", "--daemonize", "no"}, more)
		if bus {
			s.bus = ports[1]
			words = append(words, "--cluster-port", s.bus)
		}
		cmd := exec.Command("redis-server", words...)
		cmd.Env = append(os.Environ(), env...)
		*s.Daemon = daemon.Daemon{Cmd: cmd, Log: filepath.Join(folder, "log"), Addrs: []string{s.Addr()}, Ready: s.ready}
		if err = s.Start(context.Background()); err == nil {
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

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
func (s *Server) Do(words ...string) (string, error) {
	return command(s.Addr(), words...)
}

// ready asks whether the server at the address is this process, and serves.
func (s *Server) ready() error {
	conn, err := net.DialTimeout("tcp", s.Addr(), 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing was written that could be lost
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprint(conn, "INFO server\r\nPING\r\n"); err != nil {
		return err
	}
	pid := ""
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if id, ok := strings.CutPrefix(line, "process_id:"); ok {
			pid = id
		}
		if line == "+PONG" && pid == fmt.Sprint(s.Pid()) {
			return nil
		}
		if line == "+PONG" || strings.HasPrefix(line, "-") { // it is still loading its data
			return fmt.Errorf("process %q says %s", pid, line)
		}
	}
	return errors.New("the server has closed the connection")
}

func command(addr string, words ...string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close() //nolint:errcheck // the answer has been read
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprint(conn, strings.Join(words, " ")+"\r\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}
