package redlock_test

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redlock"
)

func Example() {
	var nodes []*redis.Client
	for _, addr := range []string{"10.0.1.1:6379", "10.0.2.1:6379", "10.0.3.1:6379"} {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	masters := redlock.New(nodes, redlock.WithRestartDelay(time.Minute))
	locks, err := core.New(masters, core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(context.Background(), core.Policy{Key: "nightly-report", TTL: 30 * time.Second},
		func(ctx context.Context) error {
			// ctx ends if the lease is lost.
			return nil
		})
	if err != nil {
		fmt.Println(err)
	}
	for _, node := range masters.States() {
		fmt.Println(node.Addr, node.Condition, "since", node.Since)
	}
}
