package testservers

import (
	"testing"

	"github.com/lockaround/lockaround/core/internal/servers"
)

// Cluster is a Redis Cluster: masters that share the slots evenly, each with as many replicas. A slot
// without a master does not stop the others. It ends with the test. Its methods fail the test when
// they cannot do what they say, and are for one goroutine.
type Cluster struct {
	nodes
	cluster *servers.Cluster
}

// RedisCluster starts a Cluster and returns when every node knows all others and serves. replicas is
// how many each master has. More arguments are passed to each redis-server: a node that has not been heard of for
// --cluster-node-timeout, which is 1500 ms unless it is given, counts as dead.
func RedisCluster(tb testing.TB, masters, replicas int, args ...string) *Cluster {
	tb.Helper()
	c, err := servers.StartCluster(tb.Context(), masters, replicas, append([]string{"--cluster-node-timeout", "1500"}, args...)...)
	started(tb, c, err)
	return &Cluster{newNodes(tb, c.Nodes), c}
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return c.cluster.Addrs() }

// Do sends one command to every node.
func (c *Cluster) Do(words ...string) {
	c.tb.Helper()
	for _, n := range c.cluster.Nodes {
		_, err := n.Say(c.tb.Context(), words...)
		c.must(err)
	}
}

// Slot returns the slot of a Redis key, as the servers compute it.
func (c *Cluster) Slot(key string) int {
	c.tb.Helper()
	slot, err := c.cluster.Slot(c.tb.Context(), key)
	c.must(err)
	return slot
}

// Masters returns the masters, in the order of their slots.
func (c *Cluster) Masters() (masters []*Server) {
	c.tb.Helper()
	nodes, err := c.cluster.Masters(c.tb.Context())
	c.must(err)
	for _, n := range nodes {
		masters = append(masters, c.all[n])
	}
	return masters
}

// Master returns the master of a slot.
func (c *Cluster) Master(slot int) *Server {
	c.tb.Helper()
	return c.found(c.cluster.Master(c.tb.Context(), slot))
}

// Move moves a slot with its keys to another master, as redis-cli --cluster reshard does, and returns
// when all nodes know. meanwhile is called when the keys have moved and nobody knows yet: who asks
// for them is sent on with ASK.
func (c *Cluster) Move(slot int, to *Server, meanwhile ...func()) {
	c.tb.Helper()
	c.must(c.cluster.Move(c.tb.Context(), slot, to.node, meanwhile...))
}

// BeginMove is what Move begins with: the slot's master sends clients on for the keys that it does
// not have.
func (c *Cluster) BeginMove(slot int, to *Server) {
	c.tb.Helper()
	c.found(c.cluster.BeginMove(c.tb.Context(), slot, to.node))
}

// CutReplication keeps the replicas of master from receiving what is written to it.
func (c *Cluster) CutReplication(master *Server) {
	c.tb.Helper()
	c.must(master.node.CutReplication(c.tb.Context()))
}

// FailOver promotes a replica of the slot's master without losing a write, and
// returns it.
func (c *Cluster) FailOver(slot int) *Server {
	c.tb.Helper()
	return c.found(c.cluster.FailOver(c.tb.Context(), slot))
}

// Promoted returns when all nodes that run know another master of the slot than
// old, and that one serves.
func (c *Cluster) Promoted(slot int, old *Server) {
	c.tb.Helper()
	c.must(c.cluster.Promoted(c.tb.Context(), slot, old.node))
}

// Settled returns when all nodes that run serve and agree on who has which slot.
func (c *Cluster) Settled() {
	c.tb.Helper()
	c.must(c.cluster.Settled(c.tb.Context()))
}
