package testservers

import (
	"context"
	"errors"
	"os/exec"
	"testing"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Redis starts a redis-server without persistence. More arguments are passed to it as they are:
// "--maxmemory", "10mb". One that asks for a password does not count as ready; set that by [Server.Do].
func Redis(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return redis(tb, servers.StartRedis, servers.Options{Args: args})
}

// Valkey is [Redis] for a valkey-server, which takes the same arguments.
func Valkey(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return redis(tb, servers.StartValkey, servers.Options{Args: args})
}

// RedisWithClock is [Redis] whose wall clock [Server.Jump] sets, which takes a C compiler.
func RedisWithClock(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return redis(tb, servers.StartRedis, servers.Options{Args: args, Clock: true}).withClock()
}

func redis(tb testing.TB, start func(context.Context, servers.Options) (*servers.Node, error), o servers.Options) *Server {
	tb.Helper()
	n, err := start(tb.Context(), o)
	started(tb, n, err)
	return ofNode(tb, n)
}

func ofNode(tb testing.TB, n *servers.Node) *Server { return &Server{tb: tb, s: n.Server, node: n} }

// Etcd starts an etcd that is a cluster of one. More arguments are passed to it as they are.
func Etcd(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return EtcdCluster(tb, 1, args...)[0]
}

// EtcdCluster starts a cluster of n etcd servers, and returns when each answers and has a leader.
// More arguments are passed to each. [Server.Resume] of one returns when it answers, be it without a
// leader.
func EtcdCluster(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	return several(tb, servers.StartEtcd, n, args)
}

// ZooKeeper starts a ZooKeeper server alone. Arguments are lines of its zoo.cfg, and properties of
// the Java machine: "tickTime=100", "-Dname=value". LOCKAROUND_ZOOKEEPER in the environment is the
// folder of its classes, if that is not /usr/share/java.
func ZooKeeper(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return ZooKeeperEnsemble(tb, 1, args...)[0]
}

// ZooKeeperEnsemble starts n ZooKeeper servers that are one store, and returns when all serve. It is
// like [ZooKeeper] otherwise. See [Server.Mode] for which of them leads.
func ZooKeeperEnsemble(tb testing.TB, n int, args ...string) []*Server {
	tb.Helper()
	return several(tb, servers.StartZooKeeper, n, args)
}

func several(tb testing.TB, start func(context.Context, int, servers.Options) ([]*servers.Server, error), n int, args []string) (all []*Server) {
	tb.Helper()
	those, err := start(tb.Context(), n, servers.Options{Args: args})
	for _, s := range those {
		started(tb, s, nil)
		all = append(all, &Server{tb: tb, s: s})
	}
	started(tb, nil, err)
	return all
}

// PostgreSQL starts a PostgreSQL server, which does not wait for the disk. More arguments are passed to
// it as they are: "-c", "log_statement=all". It takes seconds, so that tests may better be [Share] one.
func PostgreSQL(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return database(tb, servers.PostgreSQL, servers.Options{Args: args})
}

// PostgreSQLWithClock is [PostgreSQL] whose wall clock [Server.Jump] sets, which takes a C compiler.
func PostgreSQLWithClock(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return database(tb, servers.PostgreSQL, servers.Options{Args: args, Clock: true}).withClock()
}

// MariaDB starts a MariaDB server, which does not wait for the disk. It is like [PostgreSQL]
// otherwise.
func MariaDB(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return database(tb, servers.MariaDB, servers.Options{Args: args})
}

func database(tb testing.TB, d *servers.Database, o servers.Options) *Server {
	tb.Helper()
	s, err := d.Start(tb.Context(), o)
	started(tb, s, err)
	return &Server{tb: tb, s: s, database: d}
}

func (s *Server) withClock() *Server {
	s.tb.Helper()
	if _, ok := s.s.Clock(); !ok {
		Missing(s.tb, "a C compiler", exec.ErrNotFound)
	}
	return s
}

// started fails the test, or skips it, if there is an error. Otherwise what was started ends with it.
func started(tb testing.TB, what interface{ Close() error }, err error) {
	tb.Helper()
	if errors.Is(err, exec.ErrNotFound) {
		Missing(tb, "a server", err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if what == nil {
		return
	}
	tb.Cleanup(func() {
		if err := what.Close(); err != nil {
			tb.Errorf("end a server: %v", err)
		}
	})
}
