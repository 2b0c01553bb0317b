package redisqueue_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/decorator/internal/redisserver"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what has to come.
const patience = 2 * time.Minute

// client returns a client of the server, closed with the test.
func client(t testing.TB, s *redisserver.Server, o redis.Options) *redis.Client {
	t.Helper()
	o.Network, o.Addr = s.Network, s.Addr
	// A server that is slow since the machine is busy is not out of reach.
	o.ReadTimeout, o.DialTimeout = patience, cmp.Or(o.DialTimeout, patience)
	c := redis.NewClient(&o)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newStore(t testing.TB, c redis.UniversalClient, o ...redisqueue.Option) *redisqueue.Store {
	t.Helper()
	s, err := redisqueue.New(c, "shop:queue:", o...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// freePort returns a free port p for which p+10000, a Cluster's own, is free too.
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

// startCluster returns the addresses of the masters of a Cluster, which share the slots.
func startCluster(t testing.TB, masters int) (addrs []string) {
	t.Helper()
	const slots = 16384
	var nodes []*redis.Client
	for i := range masters {
		port := fmt.Sprint(freePort(t))
		s := redisserver.StartAt(t, "tcp", "127.0.0.1:"+port, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-node-timeout", "120000")
		addrs, nodes = append(addrs, s.Addr), append(nodes, client(t, s, redis.Options{}))
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
	deadline := time.Now().Add(patience)
	for _, n := range nodes {
		for {
			info := n.ClusterInfo(t.Context()).Val()
			if strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d", masters)) {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("waited in vain for the Cluster to serve")
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	return addrs
}
