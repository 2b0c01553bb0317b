// Package etcdtest runs real etcd servers for tests.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Server is an etcd process of its own, on free ports of 127.0.0.1. It ends with the
// test that started it. Its methods fail the test when they cannot do what they say, and
// are for one goroutine.
type Server struct {
	t      testing.TB
	client string // host and port
	args   []string
	cmd    *exec.Cmd // nil if it does not run
	out    *strings.Builder
	done   chan struct{}
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
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	if _, err := exec.LookPath("etcd"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("etcd is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs etcd in PATH: %v", err)
	}
	// A free port may be taken by somebody else before the server has it.
	var err error
	for range 3 {
		var all []*Server
		if all, err = startCluster(t, n); err == nil {
			return all
		}
	}
	t.Fatalf("start etcd: %v", err)
	return nil
}

func startCluster(t testing.TB, n int) ([]*Server, error) {
	t.Helper()
	var all []*Server
	var peers, members []string
	for i := range n {
		client, err := freeAddr()
		if err != nil {
			return nil, err
		}
		peer, err := freeAddr()
		if err != nil {
			return nil, err
		}
		peers = append(peers, peer)
		members = append(members, fmt.Sprintf("m%d=http://%s", i, peer))
		all = append(all, &Server{t: t, client: client})
	}
	folder := t.TempDir()
	for i, s := range all {
		s.args = []string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(folder, fmt.Sprintf("m%d", i)),
			"--listen-client-urls", "http://" + s.client, "--advertise-client-urls", "http://" + s.client,
			"--listen-peer-urls", "http://" + peers[i], "--initial-advertise-peer-urls", "http://" + peers[i],
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", folder,
			"--log-level", "error", "--logger", "zap",
		}
		t.Cleanup(s.Kill)
		if err := s.run(); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		if err := s.answers(); err != nil {
			for _, s := range all {
				s.Kill()
			}
			return nil, err
		}
	}
	return all, nil
}

// Addr returns the host and port for clients.
func (s *Server) Addr() string { return s.client }

// Kill ends the server with SIGKILL and returns when it is gone. Killing it twice is a
// no-op.
func (s *Server) Kill() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Errorf("kill etcd: %v", err)
	}
	<-s.done
	s.cmd = nil
}

// Restart starts the server again with its data, after killing it if it still runs, and
// returns when it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := errors.Join(s.run(), s.answers()); err != nil {
		s.t.Fatalf("restart etcd: %v", err)
	}
}

// Stop pauses the server with SIGSTOP: connections stay, nothing answers.
func (s *Server) Stop() { s.signal(syscall.SIGSTOP) }

// Cont ends a pause.
func (s *Server) Cont() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("%v to etcd: %v", sig, err)
	}
}

func (s *Server) run() error {
	s.out = &strings.Builder{}
	cmd := exec.Command("etcd", s.args...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // needed there, and ignored elsewhere
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // it is killed
	}()
	s.cmd, s.done = cmd, done
	return nil
}

// answers waits until the server serves what needs a leader.
func (s *Server) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// A restart has another one, and the goroutine may come so late. Without it one would
	// wait for a process that has ended.
	done := s.done
	go func() {
		select {
		case <-done:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, err := dial(s.client)
	if err != nil {
		return err
	}
	_, err = c.Get(ctx, "ready")
	if err == nil {
		select {
		case <-done: // somebody else answers on its port
			err = errors.New("the process has ended")
		default:
		}
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, s.out)
	}
	return errors.Join(err, c.Close())
}

func dial(addrs ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addrs, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second, Logger: zap.NewNop(),
	})
}

// Client returns a client of the servers with those addresses, which is closed when the
// test ends.
func Client(t testing.TB, addrs ...string) *clientv3.Client {
	t.Helper()
	c, err := dial(addrs...)
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

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	addr := l.Addr().String()
	return addr, l.Close()
}
