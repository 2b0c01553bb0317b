package redisserver

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience is more than a busy machine lets a Cluster wait.
const patience = 2 * time.Minute

// StartCluster starts the masters of a Cluster, which share the slots, and returns their
// addresses when all serve. They end with the test.
func StartCluster(t testing.TB, masters int) (addrs []string) {
	t.Helper()
	const slots = 16384
	var nodes []*redis.Client
	for i := range masters {
		port := fmt.Sprint(freePort(t))
		s := StartAt(t, "tcp", "127.0.0.1:"+port, "--port", port, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-node-timeout", "120000")
		node := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: patience, DialTimeout: patience})
		t.Cleanup(func() {
			if err := node.Close(); err != nil {
				t.Error(err)
			}
		})
		addrs, nodes = append(addrs, s.Addr), append(nodes, node)
		host, port, _ := strings.Cut(addrs[0], ":")
		err := errors.Join(
			node.Do(t.Context(), "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(),
			node.Do(t.Context(), "CLUSTER", "ADDSLOTSRANGE", i*slots/masters, (i+1)*slots/masters-1).Err(),
		)
		if i > 0 {
			err = errors.Join(err, node.ClusterMeet(t.Context(), host, port).Err())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for _, n := range nodes {
		for !serves(t, n, masters) {
			if time.Since(began) > patience {
				t.Fatal("waited in vain for the Cluster to serve")
			}
			<-tick.C
		}
	}
	return addrs
}

func serves(t testing.TB, node *redis.Client, masters int) bool {
	info := node.ClusterInfo(t.Context()).Val()
	return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, fmt.Sprintf("cluster_size:%d", masters))
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
