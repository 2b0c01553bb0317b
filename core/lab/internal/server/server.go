// Package server starts the stores that the laboratory measures, each as a process of
// its own.
package server

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Kind is the program of a server.
type Kind string

// The kinds.
const (
	Redis     Kind = "redis"
	Valkey    Kind = "valkey"
	Etcd      Kind = "etcd"
	Postgres  Kind = "postgres"
	MariaDB   Kind = "mariadb"
	ZooKeeper Kind = "zookeeper"
)

// Server is one that this program has started, in a folder of its own and on ports of
// 127.0.0.1 that were free. An ensemble is one that has members, and no process besides.
type Server struct {
	Addr    string // empty for an ensemble
	Version string
	Wipe    func(context.Context) error // empties it; nil if it cannot be
	Members []*Server
	Jump    func(by time.Duration) error // sets the wall clock of a Redis server; see [servers.Server.Jump]
	leads   func() bool                  // whether it is the leader of its ensemble
	daemon  *servers.Server              // nil for an ensemble
}

// Start returns when the server answers. The error is an [exec.ErrNotFound] if its program
// is not installed.
func Start(ctx context.Context, kind Kind) (*Server, error) {
	switch kind {
	case Etcd:
		return alone(servers.StartEtcd(ctx, 1, servers.Options{})) // keys go with the sessions of a trial
	case ZooKeeper:
		return startZooKeeper(ctx)
	case Postgres, MariaDB:
		return startDatabase(ctx, kind)
	case Three:
		return startThree(ctx)
	case SingleZooKeeper:
		return alone(servers.StartZooKeeper(ctx, 1, servers.Options{Args: []string{"tickTime=2000"}})) // each trial has keys of its own
	}
	return startRedis(ctx, servers.StartRedis, false)
}

// Close ends the server and removes its folder.
func (s *Server) Close() error { return s.each((*servers.Server).Close) }

// startRedis starts a Redis server, or what takes its place.
func startRedis(ctx context.Context, start func(context.Context, servers.Options) (*servers.Node, error), clock bool) (*Server, error) {
	n, err := start(ctx, servers.Options{Clock: clock})
	if err != nil {
		return nil, err
	}
	s := of(n.Server)
	s.Jump = n.Jump
	s.Wipe = func(ctx context.Context) error {
		_, err := n.Do(ctx, "FLUSHALL")
		return err
	}
	return s, nil
}

// alone is a server that needs no wiping.
func alone(all []*servers.Server, err error) (*Server, error) {
	if err != nil {
		return nil, err
	}
	s := of(all[0])
	s.Wipe = func(context.Context) error { return nil }
	return s, nil
}

func of(s *servers.Server) *Server { return &Server{Addr: s.Addr(), Version: s.Version, daemon: s} }

// startZooKeeper starts an ensemble of three servers, so that one can fail. A tick is 200 ms:
// the others elect a new leader when they have not heard from theirs for a second.
func startZooKeeper(ctx context.Context) (*Server, error) {
	all, err := servers.StartZooKeeper(ctx, 3, servers.Options{Args: []string{"tickTime=200", "initLimit=50", "syncLimit=5"}})
	if err != nil {
		return nil, err
	}
	s := &Server{Version: all[0].Version}
	for _, m := range all {
		one := of(m)
		one.leads = func() bool { return m.Mode() == "leader" }
		s.Members = append(s.Members, one)
	}
	return s, nil
}
