package redisfence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/fence"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(holderVar); socket != "" {
		if err := holder(socket); err != nil {
			fmt.Fprintln(os.Stderr, "holder:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// startRedis starts a redis-server without persistence that ends with the test, and
// returns the path of its socket.
func startRedis(t testing.TB, args ...string) (socket string) {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("LOCKAROUND_REQUIRE_SERVERS") == "1" {
			t.Fatalf("redis-server is required by LOCKAROUND_REQUIRE_SERVERS: %v", err)
		}
		t.Skipf("needs redis-server in PATH: %v", err)
	}
	dir, err := os.MkdirTemp("", "fence") // short, as a socket's path has to be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	socket = filepath.Join(dir, "redis")
	cmd := exec.Command("redis-server", append([]string{
		"--port", "0", "--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no",
	}, args...)...)
	out, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() && !strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(io.Discard, out)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended by itself
		<-drained
		_ = cmd.Wait() // reports the kill
	})
	if err := lines.Err(); err != nil || lines.Text() == "" {
		t.Fatalf("redis-server ended at once: %v", err)
	}
	return socket
}

// connect returns a client of a server, which sends nothing twice.
func connect(t testing.TB, socket string, protocol int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: protocol, MaxRetries: -1, ReadTimeout: time.Minute})
	t.Cleanup(func() { closeClient(t, c) })
	return c
}

func closeClient(t testing.TB, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// start starts a server and returns a client of it.
func start(t testing.TB) *redis.Client {
	t.Helper()
	return connect(t, startRedis(t), 3)
}

// startCluster returns a client of a Cluster of one node, which has all slots.
func startCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	port := clusterPort(t)
	node := connect(t, startRedis(t, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes"), 2)
	slots := make([]int, 16384)
	for i := range slots {
		slots[i] = i
	}
	if err := node.ClusterAddSlots(t.Context(), slots...).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(10 * time.Millisecond); ; {
		info, err := node.ClusterInfo(ctx).Result()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info, "cluster_state:ok") {
			tick.Stop()
			break
		}
		<-tick.C
	}
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:" + port}})
	t.Cleanup(func() { closeClient(t, c) })
	return c
}

// clusterPort returns a free port p for which p+10000, the Cluster's own, is free too.
func clusterPort(t testing.TB) string {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		if port > 65535-10000 {
			port -= 20000
		}
		_ = l.Close()
		if free(port) && free(port+10000) {
			return strconv.Itoa(port)
		}
	}
	t.Fatal("no port is free whose Cluster port is, too")
	return ""
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v; want %v", err, want)
	}
}

func token(key string, n int64) fence.Token { return fence.Token{Key: key, Number: n} }
