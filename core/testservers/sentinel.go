package testservers

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// MasterName is what the sentinels of a [Sentinel] call the master.
const MasterName = servers.MasterName

// failover is how long one may take.
const failover = 3 * time.Second

// Sentinel is a Redis master with replicas, under the watch of three Sentinels, of which two agree on
// a failover: after a second without the master. It ends with the test. Its methods fail the test when
// they cannot do what they say, and are for one goroutine.
type Sentinel struct {
	nodes
	watched *servers.Watched
}

// RedisSentinel starts a master with that many replicas and returns when the
// sentinels know each other and all of them. More arguments are passed to the
// master and the replicas.
func RedisSentinel(tb testing.TB, replicas int, args ...string) *Sentinel {
	tb.Helper()
	w, err := servers.StartWatched(tb.Context(), replicas, failover, args...)
	started(tb, w, err)
	return &Sentinel{newNodes(tb, w.Nodes), w}
}

// Watch starts one more sentinel, which watches a master alone and has known it since that
// epoch.
func Watch(tb testing.TB, master *Server, epoch int) *Server {
	tb.Helper()
	n, err := servers.StartSentinel(tb.Context(), master.node, epoch, failover)
	started(tb, n, err)
	return ofNode(tb, n)
}

// Nodes returns the master and the replicas.
func (s *Sentinel) Nodes() (all []*Server) {
	for _, n := range s.watched.Nodes {
		all = append(all, s.all[n])
	}
	return all
}

// Addrs returns the sentinels' addresses.
func (s *Sentinel) Addrs() []string { return s.watched.Sentinels.Addrs() }

// Master returns the server that all sentinels call the master.
func (s *Sentinel) Master() *Server {
	s.tb.Helper()
	return s.found(s.watched.Master(s.tb.Context()))
}

// CutReplication keeps the replicas of master from receiving what is written to
// it, and the sentinels from minding.
func (s *Sentinel) CutReplication(master *Server) {
	s.tb.Helper()
	s.must(master.node.CutReplication(s.tb.Context()))
}

// Readmit ends what CutReplication did.
func (s *Sentinel) Readmit(node *Server) {
	s.tb.Helper()
	s.must(node.node.Readmit(s.tb.Context()))
}

// Replicated returns when the replicas have all that was written to master so far.
func (s *Sentinel) Replicated(master *Server) {
	s.tb.Helper()
	s.must(master.node.Replicated(s.tb.Context(), s.watched.Without(master.node)))
}

// FailOver makes the sentinels promote a replica although the master is well, and
// returns the new master.
func (s *Sentinel) FailOver() *Server {
	s.tb.Helper()
	return s.found(s.watched.FailOver(s.tb.Context()))
}

// Promoted returns the master that has replaced old, once it is writable.
func (s *Sentinel) Promoted(old *Server) *Server {
	s.tb.Helper()
	return s.found(s.watched.Promoted(s.tb.Context(), old.node))
}

// Demoted returns when node is a replica and has caught up with its master.
func (s *Sentinel) Demoted(node *Server) {
	s.tb.Helper()
	s.must(node.node.Demoted(s.tb.Context()))
}

// nodes are the servers of a test that belong together.
type nodes struct {
	tb  testing.TB
	all map[*servers.Node]*Server
}

func newNodes(tb testing.TB, those servers.Nodes) nodes {
	s := nodes{tb, map[*servers.Node]*Server{}}
	for _, n := range those {
		s.all[n] = ofNode(tb, n)
	}
	return s
}

// must fails the test if there is an error.
func (s nodes) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

// found returns the server of a node that was found.
func (s nodes) found(n *servers.Node, err error) *Server {
	s.tb.Helper()
	s.must(err)
	return s.all[n]
}
