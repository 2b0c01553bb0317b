// Package redistest runs real Redis servers for tests.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/process"
)

// Server is a redis-server process of its own, on a free port of 127.0.0.1,
// without persistence. It ends with the test that started it. Its methods fail
// the test when they cannot do what they say, and are for one goroutine.
type Server struct {
	t    testing.TB
	env  []string // besides this process's
	port string
	bus  string   // the port of a Cluster's node for the others; empty without one
	args []string // before the port
	more []string // after it
	run  *process.Process
	cold bool // stopped
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

// start starts a server, which is a node of a Cluster if it has a bus.
func start(t testing.TB, env, args, more []string, bus bool) *Server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	s := &Server{t: t, env: env, args: append(args, "--dir", t.TempDir()), more: more}
	t.Cleanup(s.Kill)
	// Free ports may be taken by somebody else before the server has them.
	var err error
	for range 5 {
		ports, none := process.FreePorts(2)
		if none != nil {
			t.Fatal(none)
		}
		s.port = ports[0]
		if bus {
			s.bus = ports[1]
			s.more = append(slices.Clone(more), "--cluster-port", s.bus)
		}
		if err = s.launch(); err == nil {
			return s
		}
	}
	t.Fatalf("start redis-server: %v", err)
	return nil
}

// Addr returns the server's host and port.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", s.port) }

// Kill ends the server with SIGKILL and returns when it is gone and its port is free.
// Killing it twice is a no-op.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.run.Kill(); err != nil {
		s.t.Errorf("kill redis-server: %v", err)
	}
}

// Restart starts the server again on the same port, empty, after killing it if
// it still runs.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.t.Fatalf("restart redis-server: %v", err)
	}
}

// Stop pauses the server with SIGSTOP: connections stay, nothing answers.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.run.Stop(); err != nil {
		s.t.Fatalf("stop redis-server: %v", err)
	}
	s.cold = true
}

// Cont ends a pause, and returns when the server answers. One that does not run is left
// alone.
func (s *Server) Cont() {
	s.t.Helper()
	if !s.cold || !s.run.Running() {
		return
	}
	s.cold = false
	err := s.run.Cont()
	if err == nil {
		err = s.run.Until("redis-server to answer", func() bool {
			_, err := s.Do("PING") // a refusal is an answer
			return err == nil
		})
	}
	if err != nil {
		s.t.Fatalf("let redis-server go on: %v", err)
	}
}

// answers reports whether the server runs and is not stopped.
func (s *Server) answers() bool { return s.run.Running() && !s.cold }

// Do sends one command of words without spaces, on a connection of its own, and
// returns the first line of the answer.
func (s *Server) Do(words ...string) (string, error) {
	return command(s.Addr(), words...)
}

func (s *Server) launch() error {
	args := slices.Concat(s.args, []string{"--port", s.port, "--bind", "127.0.0.1", "--daemonize", "no"}, s.more)
	cmd := exec.Command("redis-server", args...)
	cmd.Env = append(os.Environ(), s.env...)
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	run, err := process.Start(cmd, s.Addr())
	if err != nil {
		return err
	}
	s.run, s.cold = run, false
	// Somebody else's server on the same port must not pass for ours.
	if err := run.Until("redis-server to answer", func() bool { return ours(s.Addr(), run.Pid()) }); err != nil {
		return fmt.Errorf("%w: %s", errors.Join(err, run.Kill()), lastLine(out.String()))
	}
	return nil
}

// ours reports whether the server at addr is the process pid and serves.
func ours(addr string, pid int) bool {
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return false
	}
	defer conn.Close() //nolint:errcheck // nothing was written that could be lost
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := fmt.Fprint(conn, "INFO server\r\nPING\r\n"); err != nil {
		return false
	}
	same := false
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if id, ok := strings.CutPrefix(line, "process_id:"); ok {
			same = id == fmt.Sprint(pid)
		}
		if line == "+PONG" {
			return same
		}
		if strings.HasPrefix(line, "-") { // it is still loading its data
			return false
		}
	}
	return false
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

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
