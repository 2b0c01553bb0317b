package redistest

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/redisserver"
)

// MasterName is what the sentinels call the master.
const MasterName = redisserver.MasterName

// failover is how long one may take.
const failover = 3 * time.Second

// Sentinel is a [redisserver.Watched] that ends with the test. Its methods fail the test when
// they cannot do what they say, and are for one goroutine.
type Sentinel struct {
	several
	watched *redisserver.Watched
}

// StartSentinel starts a master with that many replicas and returns when the
// sentinels know each other and all of them. More arguments are passed to the
// master and the replicas.
func StartSentinel(t testing.TB, replicas int, args ...string) *Sentinel {
	t.Helper()
	w, err := redisserver.StartWatched(t.Context(), replicas, failover, args...)
	started(t, w, err)
	return &Sentinel{newSeveral(t, w.Nodes), w}
}

// Watch starts a sentinel that has known the master since that epoch.
func Watch(t testing.TB, master *Server, epoch int) *Server {
	t.Helper()
	n, err := redisserver.StartSentinel(t.Context(), master.node, epoch, failover)
	started(t, n, err)
	return of(t, n)
}

// Nodes returns the master and the replicas.
func (s *Sentinel) Nodes() (nodes []*Server) {
	for _, n := range s.watched.Nodes {
		nodes = append(nodes, s.all[n])
	}
	return nodes
}

// Addrs returns the sentinels' addresses.
func (s *Sentinel) Addrs() []string { return s.watched.Sentinels.Addrs() }

// Master returns the server that all sentinels call the master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	return s.found(s.watched.Master(s.t.Context()))
}

// CutReplication keeps the replicas of master from receiving what is written to
// it, and the sentinels from minding.
func (s *Sentinel) CutReplication(master *Server) {
	s.t.Helper()
	s.must(master.node.CutReplication(s.t.Context()))
}

// Readmit ends what CutReplication did.
func (s *Sentinel) Readmit(node *Server) {
	s.t.Helper()
	s.must(node.node.Readmit(s.t.Context()))
}

// Replicated returns when the replicas have all that was written to master so far.
func (s *Sentinel) Replicated(master *Server) {
	s.t.Helper()
	s.must(master.node.Replicated(s.t.Context(), s.watched.Without(master.node)))
}

// Failover makes the sentinels promote a replica although the master is well, and
// returns the new master.
func (s *Sentinel) Failover() *Server {
	s.t.Helper()
	return s.found(s.watched.FailOver(s.t.Context()))
}

// Promoted returns the master that has replaced old, once it is writable.
func (s *Sentinel) Promoted(old *Server) *Server {
	s.t.Helper()
	return s.found(s.watched.Promoted(s.t.Context(), old.node))
}

// Demoted returns when node is a replica and has caught up with its master.
func (s *Sentinel) Demoted(node *Server) {
	s.t.Helper()
	s.must(node.node.Demoted(s.t.Context()))
}
