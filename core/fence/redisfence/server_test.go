package redisfence_test

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/internal/child"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestMain(m *testing.M) {
	child.Main(child.Roles{role: holder})
	goleak.VerifyTestMain(m)
}

// connect returns a client of a server, which sends nothing twice.
func connect(t testing.TB, addr string, protocol int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol, MaxRetries: -1, ReadTimeout: time.Minute})
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
	return connect(t, testservers.Redis(t).Addr(), 3)
}

// startCluster returns a client of a Cluster of one node, which has all slots.
func startCluster(t testing.TB) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: testservers.RedisCluster(t, 1, 0).Addrs()})
	t.Cleanup(func() { closeClient(t, c) })
	return c
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v; want %v", err, want)
	}
}

func token(key string, n int64) fence.Token { return fence.Token{Key: key, Number: n} }
