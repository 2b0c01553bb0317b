package main

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	etcd "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/redislock"
)

// store is one that the locks are kept in, and what they are held to there.
type store struct {
	Kind     server.Kind
	Shortest time.Duration // TTL that clients ask for
	Longest  time.Duration // T
	Rules    check.Rules
	open     func(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error)
}

// rules are what is the same for all stores.
var rules = check.Rules{
	Late: 50 * time.Millisecond, Slack: 500 * time.Millisecond, Search: 20 * time.Second, Warm: 100, HandOffs: 1024,
}

// stores are all, the one first that is tried unless another one is asked for.
var stores = []store{
	{
		Kind: server.Redis, Shortest: 300 * time.Millisecond, Longest: 500 * time.Millisecond,
		Rules: rules.With(500*time.Millisecond, 500*time.Millisecond, time.Second, 1500*time.Millisecond),
		open:  openRedis,
	},
	{
		// A lease lasts for whole seconds, etcd may take one more to notice its end, and a
		// restart lets all begin anew.
		Kind: server.Etcd, Shortest: 2 * time.Second, Longest: 2 * time.Second,
		Rules: rules.With(2*time.Second, 3*time.Second, 2*time.Second, 3*time.Second),
		open:  openEtcd,
	},
}

func storeNamed(name string) (store, error) {
	for _, s := range stores {
		if string(s.Kind) == name {
			return s, nil
		}
	}
	return store{}, fmt.Errorf("%q: there is no such store; there are %s and %s", name, stores[0].Kind, stores[1].Kind)
}

func openRedis(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return bug.Wrap(record(redislock.New(client)), client), client.Close, nil
}

// openEtcd has no use for a bug: the mutants are in what is the same for all stores, or in
// Redis.
func openEtcd(addr string, record func(driver.Driver) driver.Driver, _ mutant.Mutant) (driver.Driver, func() error, error) {
	client, err := etcd.New(etcd.Config{
		Endpoints: []string{"http://" + addr}, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
		Logger: zap.NewNop(),
	})
	if err != nil {
		return nil, nil, err
	}
	return record(etcdlock.New(client)), client.Close, nil
}
