package server

import (
	"context"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Store is what clients keep their locks in: one server, or several that belong together.
type Store interface {
	Addrs() []string                           // of all that clients talk to
	Masters(context.Context) ([]string, error) // those of them that are to be written to now
	Stop() error                               // each that has data, by SIGSTOP
	Cont() error                               // each
	Restart(context.Context) error             // of each that has data, as if at once
	Close() error
}

// Mender is a store that goes on without some of its servers.
type Mender interface {
	Store
	// Mend starts the servers that are dead, and returns when all is as it was in the
	// beginning, but that other servers may be masters. It reports whether one has become
	// a master that nobody asked to.
	Mend(context.Context) (unasked bool, err error)
}

// The kinds of several servers.
const (
	Sentinel Kind = "sentinel" // see Watched
	Cluster  Kind = "cluster"  // see Sharded
	Quorum   Kind = "quorum"   // see Voters
)

// Program is the kind of a store's servers. Valkey's is that of Redis: it takes the same
// commands.
func (k Kind) Program() Kind {
	switch k {
	case Sentinel, Cluster, Quorum, Valkey:
		return Redis
	}
	return k
}

// Single reports whether a store of this kind is one Redis server, or one Valkey server.
func (k Kind) Single() bool { return k == Redis || k == Valkey }

// Open starts a store of a kind. As long as it starts, it may take several seconds.
func Open(ctx context.Context, kind Kind) (Store, error) {
	switch kind {
	case Redis:
		return startRedis(ctx, servers.StartRedis, true)
	case Valkey:
		return startRedis(ctx, servers.StartValkey, true)
	case Sentinel:
		return startWatched(ctx)
	case Cluster:
		return startSharded(ctx)
	case Quorum:
		return startVoters(ctx)
	}
	return Start(ctx, kind)
}

// Addrs returns the server's address, or those of its members.
func (s *Server) Addrs() []string {
	if s.Members == nil {
		return []string{s.Addr}
	}
	var all []string
	for _, m := range s.Members {
		all = append(all, m.Addr)
	}
	return all
}

// Masters returns it too.
func (s *Server) Masters(context.Context) ([]string, error) { return s.Addrs(), nil }
