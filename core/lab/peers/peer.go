package main

import (
	"context"
	"slices"

	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// Peer is a lock library, used as its own documentation recommends.
type Peer struct {
	Name   string
	Module string // that it is in, for its release
	Store  Store

	GoRedis  bool    // it is built on go-redis
	Renewals float64 // of a lease in each TTL; 0 if it renews none

	// Open is given the scenario as a user knows what his locks are for: a peer may have
	// settings of which not all are good for the same.
	Open func(addr string, s Scenario) (Process, error)
}

// takesPart reports whether it has a part in the scenario.
func (p Peer) takesPart(s Scenario) bool {
	return slices.Contains(s.Stores, p.Store) && !slices.Contains(s.Out, p.Name)
}

// Process is what one process has of a peer: its client and what is built on it. It is
// for many goroutines.
type Process interface {
	// Lock waits for the key as long as ctx lives. ctx outlives the hold.
	Lock(ctx context.Context, key string) (unlock func() error, err error)
	Close()
}

// Store is a server that locks are kept in.
type Store = server.Kind

// The stores.
const (
	Redis = server.Redis
	Etcd  = server.Etcd
)

// subject is the peer whose ratio to the others is asked for.
const subject = "lockaround"

var peers = []Peer{
	{Name: subject, Module: "github.com/lockaround/lockaround", Store: Redis, GoRedis: true, Renewals: 3, Open: openLockaround},
	{Name: "redsync", Module: "github.com/go-redsync/redsync/v4", Store: Redis, GoRedis: true, Open: openRedsync},
	{Name: "redislock", Module: "github.com/bsm/redislock", Store: Redis, GoRedis: true, Open: openRedislock},
	{Name: "rueidislock", Module: "github.com/redis/rueidis", Store: Redis, Renewals: 2, Open: openRueidislock},
	{Name: "etcd", Module: "go.etcd.io/etcd/client/v3", Store: Etcd, Open: openEtcd},
}
