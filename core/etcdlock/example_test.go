package etcdlock_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/etcdlock"
)

func Example() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"127.0.0.1:2379"},
		DialKeepAliveTime:    2 * time.Second,
		DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locks, err := core.New(etcdlock.New(client), core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	policy := core.Policy{Key: "order:42", TTL: 10 * time.Second, Wait: 5 * time.Second}
	err = locks.Do(context.Background(), policy, func(context.Context) error {
		return nil // one process at a time is here
	})
	fmt.Println(err)
}

// What is written in the same cluster needs no fencing token: the transaction itself
// asks whether its writer still has the lock.
func ExampleDriver_IsOwner() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	store := etcdlock.New(client)
	locks, err := core.New(store, core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	ctx := context.Background()
	lease, err := locks.Acquire(ctx, core.Policy{Key: "stock:7", TTL: 10 * time.Second, Wait: core.Forever})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = lease.Release(ctx) }() // it ends by itself otherwise
	answer, err := client.Txn(ctx).
		If(store.IsOwner(lease.Token())).
		Then(clientv3.OpPut("stock/7", "41")).
		Commit()
	fmt.Println(answer.Succeeded, err)
}
