package rediscache_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/cache/rediscache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a redis-server without persistence that ends with the test.
type server struct {
	t             testing.TB
	network, addr string
	args          []string
	stop          func()
}

// startServer starts a server on a Unix socket. It can always have that, and a
// port may be taken by somebody's connection meanwhile.
func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "cache") // short, as a socket's path has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket := filepath.Join(dir, "redis")
	return start(t, "unix", socket, append(args, "--port", "0", "--unixsocket", socket))
}

func start(t testing.TB, network, addr string, args []string) *server {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	s := &server{t: t, network: network, addr: addr, args: append(args, "--dir", t.TempDir(), "--save", "", "--appendonly", "no")}
	s.start()
	t.Cleanup(func() { s.stop() })
	return s
}

func (s *server) start() {
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

// restart kills the server and starts it again, empty.
func (s *server) restart() {
	s.t.Helper()
	s.stop()
	s.start()
}

// freePort returns a free port p for which p+10000, a Cluster's own, is free too, both
// below those that connections get.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 11000 + rand.IntN(11000)
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		bus, err2 := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port+10000))
		if err == nil {
			_ = l.Close()
		}
		if err2 == nil {
			_ = bus.Close()
		}
		if err == nil && err2 == nil {
			return port
		}
	}
	t.Fatal("no port is free whose Cluster port is, too")
	return 0
}

// client returns a client of the server, closed with the test.
func (s *server) client(o redis.Options) *redis.Client {
	s.t.Helper()
	o.Network, o.Addr = s.network, s.addr
	c := redis.NewClient(&o)
	s.t.Cleanup(func() { closeClient(s.t, c) })
	return c
}

func closeClient(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// startCluster returns the addresses of the masters of a Cluster, which share the slots.
func startCluster(t testing.TB, masters int) []string {
	t.Helper()
	const slots = 16384
	var addrs []string
	var nodes []*redis.Client
	for i := range masters {
		port := fmt.Sprint(freePort(t))
		s := start(t, "tcp", "127.0.0.1:"+port, []string{"--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-node-timeout", "2000"})
		addrs, nodes = append(addrs, s.addr), append(nodes, s.client(redis.Options{}))
		host, port, _ := strings.Cut(addrs[0], ":")
		err := errors.Join(
			nodes[i].Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
			nodes[i].Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", i*slots/masters, (i+1)*slots/masters-1).Err(),
		)
		if i > 0 {
			err = errors.Join(err, nodes[i].ClusterMeet(t.Context(), host, port).Err())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		until(t, "the Cluster to serve", func() bool {
			info := n.ClusterInfo(t.Context()).Val()
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d", masters))
		})
	}
	return addrs
}

// until asks every few milliseconds whether something holds.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func newStore(t testing.TB, c redis.UniversalClient) *rediscache.Store {
	t.Helper()
	s, err := rediscache.New(c, "shop:cache:")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
