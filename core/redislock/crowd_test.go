package redislock_test

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestCrowdIsLetInOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	for name, strict := range map[string]bool{"Balanced": false, "Strict": true} {
		t.Run(name, func(t *testing.T) {
			server := testservers.Redis(t)
			suites.Crowd(t, 2000, strict, func(t testing.TB) driver.Driver {
				return redislock.New(newClient(t, redis.Options{Addr: server.Addr()}))
			})
		})
	}
}

func TestCrowdIsLetInOneByOneByACluster(t *testing.T) {
	if testing.Short() {
		t.Skip("lets a crowd in")
	}
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	suites.Crowd(t, 2000, false, func(t testing.TB) driver.Driver {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Errorf("close the client: %v", err)
			}
		})
		return redislock.New(client)
	})
}

func TestFloodIsRefusedAtOnceBeyondMaxWaiting(t *testing.T) {
	for name, strict := range map[string]bool{"Balanced": false, "Strict": true} {
		t.Run(name, func(t *testing.T) {
			server := testservers.Redis(t)
			suites.Flood(t, 10_000, strict, func(t testing.TB) driver.Driver {
				return redislock.New(newClient(t, redis.Options{Addr: server.Addr()}))
			})
		})
	}
}
