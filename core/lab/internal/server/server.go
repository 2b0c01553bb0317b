// Package server starts the stores that the laboratory measures, each as a process of
// its own.
package server

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/lockaround/lockaround/core/internal/redisserver"
	"github.com/lockaround/lockaround/core/internal/testkit/daemon"
	"github.com/lockaround/lockaround/core/internal/testkit/ensemble"
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
	Jump    func(by time.Duration) error // sets the wall clock of a Redis server; see [redisserver.Node.Jump]
	leads   func() bool                  // whether it is the leader of its ensemble
	daemon  *daemon.Daemon               // nil for an ensemble
	end     func() error                 // ends it for good, and removes its folder
}

// Start returns when the server answers. The error is an [exec.ErrNotFound] if its program
// is not installed.
func Start(ctx context.Context, kind Kind) (*Server, error) {
	switch kind {
	case Etcd:
		return inFolder(ctx, startEtcd)
	case ZooKeeper:
		return inFolder(ctx, startZooKeeper)
	case Postgres, MariaDB:
		return startDatabase(ctx, kind)
	case Three:
		return startThree(ctx)
	case SingleZooKeeper:
		return inFolder(ctx, startSingleZooKeeper)
	}
	return startRedis(ctx, redisserver.Options{})
}

// inFolder makes a folder for a server, and starts it there.
func inFolder(ctx context.Context, start func(ctx context.Context, folder string) (*Server, error)) (*Server, error) {
	folder, err := os.MkdirTemp("", "lockaround-lab-")
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, folder)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	s.end = func() error { return errors.Join(s.each((*daemon.Daemon).Retire), os.RemoveAll(folder)) }
	return s, nil
}

// Close ends the server and removes its folder.
func (s *Server) Close() error { return s.end() }

// startRedis starts a Redis server, or what takes its place.
func startRedis(ctx context.Context, o redisserver.Options) (*Server, error) {
	n, err := redisserver.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Server{
		Addr: n.Addr(), Version: n.Version, Wipe: func(ctx context.Context) error { return n.Client.FlushAll(ctx).Err() },
		Jump: n.Jump, daemon: n.Daemon, end: n.Close,
	}, nil
}

func startEtcd(ctx context.Context, folder string) (*Server, error) {
	all, err := ensemble.StartEtcd(ctx, folder, 1)
	if err != nil {
		return nil, err
	}
	return &Server{
		Addr: all[0].Addr, Version: all[0].Version, daemon: all[0].Daemon,
		Wipe: func(context.Context) error { return nil }, // keys go with the sessions of a trial
	}, nil
}

// startZooKeeper starts an ensemble of three servers, so that one can fail. A tick is 200 ms:
// the others elect a new leader when they have not heard from theirs for a second.
func startZooKeeper(ctx context.Context, folder string) (*Server, error) {
	all, err := ensemble.ZooKeeper{Settings: "tickTime=200\ninitLimit=50\nsyncLimit=5"}.Start(ctx, folder, 3)
	if err != nil {
		return nil, err
	}
	s := &Server{Version: all[0].Version}
	for _, m := range all {
		s.Members = append(s.Members, &Server{Addr: m.Addr, Version: m.Version, daemon: m.Daemon, leads: func() bool { return m.Mode() == "leader" }})
	}
	return s, nil
}
