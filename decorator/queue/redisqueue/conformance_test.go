package redisqueue_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/decorator/internal/redisnet"
	"github.com/lockaround/lockaround/decorator/queue/queuetest"
	"github.com/lockaround/lockaround/decorator/queue/redisqueue"
)

func TestConformance(t *testing.T) {
	for _, o := range []struct {
		redis.Options
		shards int
	}{{redis.Options{}, 1}, {redis.Options{Protocol: 2, MaxRetries: -1}, 4}} {
		t.Run(fmt.Sprintf("RESP%d, %d retries, %d shards", o.Protocol, o.MaxRetries, o.shards), func(t *testing.T) {
			s := testservers.Redis(t)
			queuetest.Run(t, func(t *testing.T) *queuetest.Harness {
				n := redisnet.New()
				return &queuetest.Harness{
					Store:     newStore(t, client(t, s, n.By(o.Options)), redisqueue.WithShards(o.shards)),
					Peer:      newStore(t, client(t, s, o.Options), redisqueue.WithShards(o.shards)),
					LoseReply: n.LoseReply,
				}
			})
		})
	}
}

func TestConformanceInACluster(t *testing.T) {
	addrs := testservers.RedisCluster(t, 2, 0, "--cluster-node-timeout", "120000").Addrs()
	store := func(t *testing.T) *redisqueue.Store {
		c := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
		t.Cleanup(func() { _ = c.Close() })
		return newStore(t, c, redisqueue.WithShards(3))
	}
	queuetest.Run(t, func(t *testing.T) *queuetest.Harness {
		return &queuetest.Harness{Store: store(t), Peer: store(t)}
	})
}
