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
	Ours   bool // it is what the others are compared with

	GoRedis  bool    // it is built on go-redis
	Renewals float64 // of a lease in each TTL; 0 if it renews none

	// Open is given the scenario as a user knows what his locks are for: a peer may have
	// settings of which not all are good for the same. The address of a store of several
	// servers is those of all, with commas.
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
	Three = server.Three

	ZooKeeper = server.SingleZooKeeper
	Postgres  = server.Postgres
	MariaDB   = server.MariaDB
)

// subject is the peer on Redis whose ratio to the others is asked for.
const subject = "lockaround"

// ours reports whether the ratio of that peer to the others is asked for.
func ours(peer string) bool {
	return slices.ContainsFunc(peers, func(p Peer) bool { return p.Name == peer && p.Ours })
}

var peers = []Peer{
	{Name: subject, Module: "github.com/lockaround/lockaround", Store: Redis, Ours: true, GoRedis: true, Renewals: 3, Open: openLockaround},
	{Name: "redsync", Module: "github.com/go-redsync/redsync/v4", Store: Redis, GoRedis: true, Open: openRedsync},
	{Name: "redislock", Module: "github.com/bsm/redislock", Store: Redis, GoRedis: true, Open: openRedislock},
	{Name: "rueidislock", Module: "github.com/redis/rueidis", Store: Redis, Renewals: 2, Open: openRueidislock},
	{Name: "etcd", Module: "go.etcd.io/etcd/client/v3", Store: Etcd, Open: openEtcd},
	{Name: "etcdlock", Module: "github.com/lockaround/lockaround/core/etcdlock", Store: Etcd, Ours: true, Renewals: 3, Open: openEtcdlock},
	{Name: "redsync on three", Module: "github.com/go-redsync/redsync/v4", Store: Three, GoRedis: true, Open: openRedsync},
	{Name: "redlock", Module: "github.com/lockaround/lockaround", Store: Three, Ours: true, GoRedis: true, Renewals: 3, Open: openRedlock},
	{Name: "zk.Lock", Module: "github.com/go-zookeeper/zk", Store: ZooKeeper, Open: openGoZooKeeper},
	{Name: "zklock", Module: "github.com/lockaround/lockaround/core/zklock", Store: ZooKeeper, Ours: true, Renewals: 3, Open: openZklock},
	{Name: "pg_advisory_lock", Module: "github.com/jackc/pgx/v5", Store: Postgres, Open: openAdvisory},
	{Name: "sqllock on PostgreSQL", Module: "github.com/lockaround/lockaround", Store: Postgres, Ours: true, Renewals: 3, Open: openSqllock(Postgres)},
	{Name: "GET_LOCK", Module: "github.com/go-sql-driver/mysql", Store: MariaDB, Open: openGetLock},
	{Name: "sqllock on MariaDB", Module: "github.com/lockaround/lockaround", Store: MariaDB, Ours: true, Renewals: 3, Open: openSqllock(MariaDB)},
}
