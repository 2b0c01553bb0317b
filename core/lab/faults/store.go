package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/mutant"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/redislock"
)

// store is one that the locks are kept in, and what they are held to there.
type store struct {
	Kind     server.Kind
	About    string        // the servers, and what else results should say of them
	Shortest time.Duration // TTL that clients ask for
	Longest  time.Duration // T
	Timeout  time.Duration // of an attempt to reach it
	Delay    time.Duration // for which a server has no say that has lost its data; 0 if none is kept from that
	Rules    check.Rules
	Faults   []fault                                      // its own, besides those of all
	Mutants  []string                                     // that it is tried with; nil for all
	prepare  func(ctx context.Context, addr string) error // has it ready for drivers; nil if it is
	open     func(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error)
}

// rules are what is the same for all stores.
var rules = check.Rules{
	Late: 50 * time.Millisecond, Slack: 500 * time.Millisecond, Search: 20 * time.Second, Warm: 100, HandOffs: 1024,
}

// stores are all, the one first that is tried unless another one is asked for.
var stores = []store{
	single(server.Redis, "one Redis server"), single(server.Valkey, "one Valkey server"),
	etcdStore, postgresStore, mariadbStore, zookeeperStore,
	sentinelStore, clusterStore, quorumStore,
}

// single is one server that redislock keeps locks in.
func single(kind server.Kind, about string) store {
	return store{
		Kind: kind, About: about, Shortest: 300 * time.Millisecond, Longest: 500 * time.Millisecond,
		Timeout: 500 * time.Millisecond,
		Rules:   rules.With(500*time.Millisecond, 500*time.Millisecond, time.Second, 1500*time.Millisecond),
		open:    openRedis,
	}
}

// faults are those of all stores that fit this one, and its own.
func (s store) faults() (all []fault) {
	for _, f := range slices.Concat(common, clockFaults, s.Faults) {
		if f.fits(s.Kind) {
			all = append(all, f)
		}
	}
	return all
}

// storeNames are all, with commas between.
func storeNames() string {
	var names []string
	for _, s := range stores {
		names = append(names, string(s.Kind))
	}
	return strings.Join(names, ", ")
}

func storeNamed(name string) (store, error) {
	for _, s := range stores {
		if string(s.Kind) == name {
			return s, nil
		}
	}
	return store{}, fmt.Errorf("%q: there is no such store; there are %s", name, storeNames())
}

func openRedis(addr string, record func(driver.Driver) driver.Driver, bug mutant.Mutant) (driver.Driver, func() error, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	return bug.Wrap(record(redislock.New(client)), client), client.Close, nil
}
