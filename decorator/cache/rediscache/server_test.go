package rediscache_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/cache/rediscache"
	"github.com/lockaround/lockaround/decorator/internal/redisserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// server is a server with clients.
type server struct {
	*redisserver.Server
	t testing.TB
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	return &server{redisserver.Start(t, args...), t}
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
	o.Network, o.Addr = s.Network, s.Addr
	// A server that is slow since the machine is busy is not out of reach.
	o.ReadTimeout, o.DialTimeout = patience, cmp.Or(o.DialTimeout, patience)
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
		s := &server{redisserver.StartAt(t, "tcp", "127.0.0.1:"+port, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-node-timeout", "120000"), t}
		addrs, nodes = append(addrs, s.Addr), append(nodes, s.client(redis.Options{}))
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
