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
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
)

// Server is an etcd process of its own, on free ports of 127.0.0.1. It ends with the
// test that started it. Its methods fail the test when they cannot do what they say, and
// are for one goroutine.
type Server struct {
	daemon.Test
	client, peer string // host and port
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
		daemon.Missing(t, "etcd in PATH", err)
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
		s := &Server{Test: daemon.Test{T: t}, client: "127.0.0.1:" + ports[2*i], peer: "127.0.0.1:" + ports[2*i+1]}
		members = append(members, fmt.Sprintf("m%d=http://%s", i, s.peer))
		all = append(all, s)
	}
	folder := t.TempDir()
	for i, s := range all {
		name := fmt.Sprintf("m%d", i)
		cmd := exec.Command("etcd",
			"--name", name, "--data-dir", filepath.Join(folder, name),
			"--listen-client-urls", "http://"+s.client, "--advertise-client-urls", "http://"+s.client,
			"--listen-peer-urls", "http://"+s.peer, "--initial-advertise-peer-urls", "http://"+s.peer,
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-token", folder,
			"--log-level", "error", "--logger", "zap")
		cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH=arm64") // needed there, and ignored elsewhere
		s.Daemon = &daemon.Daemon{
			Cmd: cmd, Log: filepath.Join(folder, name+".log"), Addrs: []string{s.client, s.peer},
			Ready: func() error { return s.reads() },
		}
		t.Cleanup(s.Kill)
		if err := s.Spawn(); err != nil {
			return nil, err
		}
	}
	for _, s := range all {
		if err := s.Await(context.Background(), s.Ready); err != nil {
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

// Cont ends a pause, and returns when the server answers, be it without a leader. One that
// was not stopped is left alone.
func (s *Server) Cont() {
	s.T.Helper()
	s.ContUntil(func() error { return s.reads(clientv3.WithSerializable()) })
}

// reads reads a key, which needs a leader unless it is told otherwise.
func (s *Server) reads(how ...clientv3.OpOption) error {
	c, err := dial(s.client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = c.Get(ctx, "ready", how...)
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
