package zklock_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/zklock"
)

// The locks of an ensemble that is reached by TLS and knows its clients by name.
func Example() {
	store := zklock.New([]string{"zk1:2281", "zk2:2281", "zk3:2281"},
		zklock.WithDialer(new(tls.Dialer).DialContext),
		zklock.WithAuth("digest", []byte("shop:secret")),
		zklock.WithACL(zk.AuthACL(zk.PermAll)...),
		zklock.WithSessionTimeout(20*time.Second))
	locks, err := core.New(store, core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()

	err = locks.Do(context.Background(), core.Policy{Key: "report:daily", Wait: time.Second}, func(context.Context) error {
		fmt.Println("nobody else writes the report")
		return nil
	})
	fmt.Println(err)
}

// An ensemble as it comes, and a lock around a call.
func ExampleNew() {
	locks, err := core.New(zklock.New([]string{"127.0.0.1:2181"}), core.WithNamespace("shop:prod"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	if err := locks.Ping(context.Background()); err != nil {
		fmt.Println(err)
		return
	}
	policy := core.Policy{Name: "order", Key: "order:42", TTL: 10 * time.Second, Wait: 5 * time.Second}
	err = locks.Do(context.Background(), policy, func(context.Context) error {
		return nil // one process at a time is here
	})
	if err != nil {
		fmt.Println(err)
	}
}
