package redistest

import (
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core/internal/redisserver"
)

// Cluster is a [redisserver.Cluster] that ends with the test. Its methods fail the test when
// they cannot do what they say, and are for one goroutine.
type Cluster struct {
	several
	cluster *redisserver.Cluster
}

// StartCluster starts a Cluster and returns when every node knows all others and
// serves. More arguments are passed to each redis-server.
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	c, err := redisserver.StartCluster(t.Context(), masters, replicas, append(args, "--cluster-node-timeout", "1500")...)
	started(t, c, err)
	return &Cluster{newSeveral(t, c.Nodes), c}
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return c.cluster.Addrs() }

// Do sends one command of words without spaces to every node.
func (c *Cluster) Do(words ...string) {
	c.t.Helper()
	for _, n := range c.cluster.Nodes {
		if answer, err := n.Send(words...); err != nil || strings.HasPrefix(answer, "-") {
			c.t.Fatalf("%s: %s, %v", words[0], answer, err)
		}
	}
}

// Slot returns the slot of a Redis key, as the servers compute it.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	slot, err := c.cluster.Slot(c.t.Context(), key)
	c.must(err)
	return slot
}

// Masters returns the masters, in the order of their slots.
func (c *Cluster) Masters() (masters []*Server) {
	c.t.Helper()
	nodes, err := c.cluster.Masters(c.t.Context())
	c.must(err)
	for _, n := range nodes {
		masters = append(masters, c.all[n])
	}
	return masters
}

// Master returns the master of a slot.
func (c *Cluster) Master(slot int) *Server {
	c.t.Helper()
	return c.found(c.cluster.Master(c.t.Context(), slot))
}

// Move moves a slot with its keys to another master, see [redisserver.Cluster.Move].
func (c *Cluster) Move(slot int, to *Server, meanwhile ...func()) {
	c.t.Helper()
	c.must(c.cluster.Move(c.t.Context(), slot, to.node, meanwhile...))
}

// BeginMove is what Move begins with, see [redisserver.Cluster.BeginMove].
func (c *Cluster) BeginMove(slot int, to *Server) {
	c.t.Helper()
	c.found(c.cluster.BeginMove(c.t.Context(), slot, to.node))
}

// CutReplication keeps the replicas of master from receiving what is written to it.
func (c *Cluster) CutReplication(master *Server) {
	c.t.Helper()
	c.must(master.node.CutReplication(c.t.Context()))
}

// FailOver promotes a replica of the slot's master without losing a write, and
// returns it.
func (c *Cluster) FailOver(slot int) *Server {
	c.t.Helper()
	return c.found(c.cluster.FailOver(c.t.Context(), slot))
}

// Promoted returns when all nodes that run know another master of the slot than
// old, and that one serves.
func (c *Cluster) Promoted(slot int, old *Server) {
	c.t.Helper()
	c.must(c.cluster.Promoted(c.t.Context(), slot, old.node))
}

// Settled returns when all nodes that run serve and agree on who has which slot.
func (c *Cluster) Settled() {
	c.t.Helper()
	c.must(c.cluster.Settled(c.t.Context()))
}
