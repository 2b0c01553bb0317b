package sale

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/examples/internal/redisserver"
)

// masterName is what startSentinel's Sentinel calls its master.
const masterName = "shop"

// startRedis starts a server without persistence and returns its address.
func startRedis(t *testing.T, args ...string) string {
	t.Helper()
	return startServer(t, "ready to accept connections", func(port string) []string {
		return append([]string{"--bind", "127.0.0.1", "--port", port, "--dir", t.TempDir(), "--save", ""}, args...)
	})
}

// startNode starts a node for a Cluster, which serves no slot, and returns its
// address.
func startNode(t *testing.T) string {
	t.Helper()
	// The port of the Cluster's own bus is chosen as freely as the other.
	_, bus, err := net.SplitHostPort(freeAddr(t))
	if err != nil {
		t.Fatal(err)
	}
	return startRedis(t, "--cluster-enabled", "yes", "--cluster-port", bus)
}

// startCluster starts a Cluster of one node and returns its address.
func startCluster(t *testing.T) string {
	t.Helper()
	addr := startNode(t)
	node := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = node.Close() }()
	if err := node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	until(t, "the Cluster is complete", func(ctx context.Context) bool {
		info, err := node.ClusterInfo(ctx).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	return addr
}

// startSentinel starts a Sentinel that watches the master at addr, and returns
// the Sentinel's address.
func startSentinel(t *testing.T, addr string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return startServer(t, "+monitor master "+masterName, func(own string) []string {
		file := filepath.Join(t.TempDir(), "sentinel.conf")
		conf := "bind 127.0.0.1\nport " + own + "\ndir " + filepath.Dir(file) +
			"\nsentinel monitor " + masterName + " " + host + " " + port + " 1\n"
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{file, "--sentinel"}
	})
}

// startServer runs redis-server with the arguments for a port, and returns its
// address when it has said that it is ready. The server ends with the test.
func startServer(t *testing.T, ready string, args func(port string) []string) string {
	t.Helper()
	var said string
	for range 5 { // somebody may take a free port before the server does
		addr := freeAddr(t)
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		log, ok := redisserver.Run(t, ready, args(port)...)
		if ok {
			return addr
		}
		said += log
	}
	t.Fatalf("redis-server did not start on any of 5 ports:\n%s", said)
	return ""
}

// freeAddr returns a loopback address that nobody listened on a moment ago.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// until asks again and again, up to a minute.
func until(t *testing.T, what string, is func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !is(ctx) {
		select {
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
