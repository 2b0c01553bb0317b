package main

import (
	"context"

	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// Peer is a lock library, used as its own documentation recommends.
type Peer struct {
	Name   string
	Module string // that it is in, for its release
	Store  Store
	Open   func(addr string) (Process, error)
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
	{Name: subject, Module: "github.com/lockaround/lockaround", Store: Redis, Open: openLockaround},
	{Name: "redsync", Module: "github.com/go-redsync/redsync/v4", Store: Redis, Open: openRedsync},
	{Name: "redislock", Module: "github.com/bsm/redislock", Store: Redis, Open: openRedislock},
	{Name: "rueidislock", Module: "github.com/redis/rueidis", Store: Redis, Open: openRueidislock},
	{Name: "etcd", Module: "go.etcd.io/etcd/client/v3", Store: Etcd, Open: openEtcd},
}
