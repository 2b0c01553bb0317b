package redislock_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
)

// One Redis, and a lock around a call. Ping tells at the start whether the server answers and
// lets the client do what the locks need.
func Example() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer func() { _ = rdb.Close() }() // after the engine
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()
	if err := locks.Ping(ctx); err != nil {
		fmt.Println(err)
		return
	}
	err = locks.Do(ctx, core.Policy{Name: "report", Key: "report:daily", Wait: 5 * time.Second}, func(ctx context.Context) error {
		return nil // ctx ends if the lease is lost
	})
	if err != nil {
		fmt.Println(err)
	}
}

// A Cluster: each key is locked at the master of its slot.
func ExampleNew_cluster() {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                 []string{"10.0.1.1:6379", "10.0.2.1:6379", "10.0.3.1:6379"},
		ContextTimeoutEnabled: true, // callers may then send for themselves
	})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()
}

// A service goes over from redsync or bsm/redislock, one replica after the other.
func ExampleWithKeys() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	locks, err := core.New(redislock.New(rdb, redislock.WithKeys(func(key string) string {
		return strings.TrimPrefix(key, "shop/") // the namespace; the other library locks "stock:A-1"
	})), core.WithNamespace("shop"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()
}

// Sentinel: list all of them, so that one that is behind cannot keep the locks at an old master.
func ExampleNewFailoverClient() {
	rdb := redislock.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    "shop",
		SentinelAddrs: []string{"10.0.1.1:26379", "10.0.2.1:26379", "10.0.3.1:26379"},
	})
	locks, err := core.New(redislock.New(rdb), core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = locks.Close() }()
}
