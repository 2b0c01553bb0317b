// Package etcdtest runs real etcd servers for tests.
package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/internal/process"
)

// Server is an etcd process of its own, on free ports of 127.0.0.1. It ends with the
// test that started it. Its methods fail the test when they cannot do what they say, and
// are for one goroutine.
type Server struct {
	t      testing.TB
	client string // host and port
	args   []string
	peer   string
	out    *strings.Builder
	cold   bool // stopped
	run    *process.Process
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
	ports, err := process.FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var all []*Server
	var members []string
	for i := range n {
		s := &Server{t: t, client: "127.0.0.1:" + ports[2*i], peer: "127.0.0.1:" + ports[2*i+1]}
		members = append(members, fmt.Sprintf("m%d=http://%s", i, s.peer))
		all = append(all, s)
	}
	folder := t.TempDir()
	for i, s := range all {
		s.args = []string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(folder, fmt.Sprintf("m%d", i)),
			"--listen-client-urls", "http://" + s.client, "--advertise-client-urls", "http://" + s.client,
			"--listen-peer-urls", "http://" + s.peer, "--initial-advertise-peer-urls", "http://" + s.peer,
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", folder,
			"--log-level", "error", "--logger", "zap",
		}
		t.Cleanup(s.Kill)
		if err := s.launch(); err != nil {
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

// Kill ends the server with SIGKILL and returns when it is gone and its ports are free.
// Killing it twice is a no-op.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.run.Kill(); err != nil {
		s.t.Errorf("kill etcd: %v", err)
	}
	s.cold = false
}

// Restart starts the server again with its data, after killing it if it still runs, and
// returns when it answers.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	err := s.launch()
	if err == nil {
		err = s.answers()
	}
	if err != nil {
		s.t.Fatalf("restart etcd: %v", err)
	}
}

// Stop pauses the server with SIGSTOP: connections stay, nothing answers.
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.run.Stop(); err != nil {
		s.t.Fatalf("stop etcd: %v", err)
	}
	s.cold = true
}

// Cont ends a pause, and returns when the server answers, be it without a leader. One that
// was not stopped is left alone.
func (s *Server) Cont() {
	s.t.Helper()
	if !s.cold {
		return
	}
	s.cold = false
	err := s.run.Cont()
	if err == nil {
		err = s.answers(clientv3.WithSerializable())
	}
	if err != nil {
		s.t.Fatalf("let etcd go on: %v", err)
	}
}

func (s *Server) launch() error {
	s.out, s.cold = &strings.Builder{}, false
	cmd := exec.Command("etcd", s.args...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // needed there, and ignored elsewhere
	var err error
	s.run, err = process.Start(cmd, s.client, s.peer)
	return err
}

// answers waits until the server reads a key, which needs a leader unless it is told
// otherwise.
func (s *Server) answers(how ...clientv3.OpOption) error {
	c, err := dial(s.client)
	if err != nil {
		return err
	}
	err = s.run.Until("etcd to answer", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := c.Get(ctx, "ready", how...)
		return err == nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %s", errors.Join(err, s.run.Kill()), s.out)
	} else if !s.run.Running() {
		err = errors.New("the process has ended, and somebody else answers on its port")
	}
	return errors.Join(err, c.Close())
}

func dial(addrs ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: addrs, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 30 * time.Second, Logger: zap.NewNop(),
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
