package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// slots is how many a Cluster has.
const slots = 16384

// Cluster is a Redis Cluster: masters that share the slots evenly, each with as
// many replicas. A slot without a master does not stop the others. It ends with
// the test. Its methods fail the test when they cannot do what they say, and are
// for one goroutine.
type Cluster struct {
	t     testing.TB
	nodes []*clusterNode // the masters of the beginning first
}

// clusterNode is a server, a client of it alone, and its name in the Cluster.
type clusterNode struct {
	*Server
	client *redis.Client
	id     string
}

// StartCluster starts a Cluster and returns when every node knows all others and
// serves. More arguments are passed to each redis-server.
func StartCluster(t testing.TB, masters, replicas int, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range masters * (1 + replicas) {
		n := &clusterNode{Server: start(t, nil, inMemory, slices.Concat(args, []string{
			"--cluster-enabled", "yes", "--cluster-node-timeout", "1500",
			"--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0",
		}), true)}
		n.client = redis.NewClient(&redis.Options{Addr: n.Addr(), MaxRetries: -1})
		t.Cleanup(func() { _ = n.client.Close() })
		n.id = c.ask(n, "CLUSTER", "MYID")
		c.nodes = append(c.nodes, n)
	}
	for i, n := range c.nodes {
		c.ask(n, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
		if i < masters {
			c.ask(n, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(i*slots/masters), fmt.Sprint((i+1)*slots/masters-1))
		}
		if i > 0 {
			c.ask(c.nodes[0], "CLUSTER", "MEET", "127.0.0.1", n.port, n.bus)
		}
	}
	c.Settled()
	for i, n := range c.nodes[masters:] {
		c.ask(n, "CLUSTER", "REPLICATE", c.nodes[i%masters].id)
	}
	c.until("the replicas to be in sync", func(ctx context.Context) bool {
		for _, n := range c.nodes[:masters] {
			if strings.Count(n.client.Info(ctx, "replication").Val(), "state=online") != replicas {
				return false
			}
		}
		for _, n := range c.nodes {
			for _, r := range c.ranges(n) {
				if len(r.Nodes) != 1+replicas {
					return false
				}
			}
		}
		return true
	})
	c.Settled()
	return c
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, n := range c.nodes {
		addrs = append(addrs, n.Addr())
	}
	return addrs
}

// Do sends one command of words without spaces to every node.
func (c *Cluster) Do(words ...string) {
	c.t.Helper()
	for _, n := range c.nodes {
		if answer, err := n.Server.Do(words...); err != nil || strings.HasPrefix(answer, "-") {
			c.t.Fatalf("%s: %s, %v", words[0], answer, err)
		}
	}
}

// Slot returns the slot of a Redis key, as the servers compute it.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	slot, err := c.nodes[0].client.ClusterKeySlot(c.t.Context(), key).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	return int(slot)
}

// Masters returns the masters that run, in the order of their slots.
func (c *Cluster) Masters() []*Server {
	c.t.Helper()
	var masters []*Server
	for _, r := range c.ranges(c.running()) {
		if n := c.byID(r.Nodes[0].ID); n != nil && !slices.Contains(masters, n.Server) {
			masters = append(masters, n.Server)
		}
	}
	return masters
}

// Master returns the master of a slot.
func (c *Cluster) Master(slot int) *Server {
	c.t.Helper()
	return c.owner(c.running(), slot).Server
}

// Replica returns a replica of the slot's master.
func (c *Cluster) Replica(slot int) *Server {
	c.t.Helper()
	for _, r := range c.ranges(c.running()) {
		if r.Start <= slot && slot <= r.End && len(r.Nodes) > 1 {
			return c.byID(r.Nodes[1].ID).Server
		}
	}
	c.t.Fatalf("the master of slot %d has no replica", slot)
	return nil
}

// Move moves a slot with its keys to another master, as redis-cli --cluster
// reshard does, and returns when all nodes know. meanwhile is called when the keys
// have moved and nobody knows yet: who asks for them is sent on with ASK.
func (c *Cluster) Move(slot int, to *Server, meanwhile ...func()) {
	c.t.Helper()
	ctx, s := c.t.Context(), fmt.Sprint(slot)
	from, into := c.owner(c.running(), slot), c.node(to)
	c.BeginMove(slot, to)
	for {
		keys, err := from.client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			c.t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			c.ask(from, "MIGRATE", "127.0.0.1", into.port, key, 0, 10_000, "REPLACE")
		}
	}
	for _, f := range meanwhile {
		f()
	}
	told := []*clusterNode{into, from}
	for _, m := range c.Masters() {
		if n := c.node(m); n != into && n != from {
			told = append(told, n)
		}
	}
	for _, n := range told {
		c.ask(n, "CLUSTER", "SETSLOT", s, "NODE", into.id)
	}
	c.Settled()
}

// BeginMove is what Move begins with: the slot's master sends clients on for the
// keys that it does not have.
func (c *Cluster) BeginMove(slot int, to *Server) {
	c.t.Helper()
	s := fmt.Sprint(slot)
	from, into := c.owner(c.running(), slot), c.node(to)
	c.ask(into, "CLUSTER", "SETSLOT", s, "IMPORTING", from.id)
	c.ask(from, "CLUSTER", "SETSLOT", s, "MIGRATING", into.id)
}

// FailOver promotes a replica of the slot's master without losing a write, and
// returns it.
func (c *Cluster) FailOver(slot int) *Server {
	c.t.Helper()
	old, next := c.Master(slot), c.Replica(slot)
	c.ask(c.node(next), "CLUSTER", "FAILOVER")
	c.Promoted(slot, old)
	return next
}

// Promoted returns when all nodes that run know another master of the slot than
// old, and that one serves.
func (c *Cluster) Promoted(slot int, old *Server) {
	c.t.Helper()
	c.until("a promotion", func(ctx context.Context) bool {
		for _, n := range c.nodes {
			if n.Serves() && n.Server != old {
				if m := c.owner(n, slot); m == nil || m.Server == old || !c.serves(ctx, m) {
					return false
				}
			}
		}
		return true
	})
}

// Settled returns when all nodes that run serve and agree on who has which slot.
func (c *Cluster) Settled() {
	c.t.Helper()
	c.until("the nodes to agree", func(ctx context.Context) bool {
		view := ""
		for _, n := range c.nodes {
			if !n.Serves() {
				continue
			}
			mine := Opinion(n.client.ClusterNodes(ctx).Val())
			if strings.Count(mine, "\n") != len(c.nodes) || !c.serves(ctx, n) || view != "" && mine != view {
				return false
			}
			view = mine
		}
		return true
	})
}

// Opinion is what CLUSTER NODES says of each node's epoch and slots. A node that
// has not heard of an epoch may lose a slot which it has just been given.
func Opinion(nodes string) string {
	var lines []string
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) >= 8 { // id address flags master ping pong epoch link slots…
			lines = append(lines, strings.Join(append([]string{f[0], f[6]}, f[8:]...), " ")+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func (c *Cluster) serves(ctx context.Context, n *clusterNode) bool {
	return strings.Contains(n.client.ClusterInfo(ctx).Val(), "cluster_state:ok\r\n")
}

// ranges is who has which slots, as n sees it, in the order of the slots.
func (c *Cluster) ranges(n *clusterNode) []redis.ClusterSlot {
	c.t.Helper()
	ranges, err := n.client.ClusterSlots(c.t.Context()).Result()
	if err != nil {
		c.t.Fatal(err)
	}
	slices.SortFunc(ranges, func(a, b redis.ClusterSlot) int { return a.Start - b.Start })
	return ranges
}

// owner is the master of a slot as n sees it, nil if it has none.
func (c *Cluster) owner(n *clusterNode, slot int) *clusterNode {
	c.t.Helper()
	for _, r := range c.ranges(n) {
		if r.Start <= slot && slot <= r.End {
			return c.byID(r.Nodes[0].ID)
		}
	}
	return nil
}

func (c *Cluster) running() *clusterNode {
	c.t.Helper()
	for _, n := range c.nodes {
		if n.Serves() {
			return n
		}
	}
	c.t.Fatal("no node of the Cluster runs")
	return nil
}

func (c *Cluster) byID(id string) *clusterNode {
	i := slices.IndexFunc(c.nodes, func(n *clusterNode) bool { return n.id == id })
	if i < 0 {
		return nil
	}
	return c.nodes[i]
}

func (c *Cluster) node(s *Server) *clusterNode {
	return c.nodes[slices.IndexFunc(c.nodes, func(n *clusterNode) bool { return n.Server == s })]
}

// ask sends one command and returns its answer.
func (c *Cluster) ask(n *clusterNode, words ...any) string {
	c.t.Helper()
	answer, err := n.client.Do(c.t.Context(), words...).Text()
	if err != nil {
		c.t.Fatalf("%v: %v", words, err)
	}
	return answer
}

// until is the package's until, and logs what each node knows if it waits in vain.
func (c *Cluster) until(what string, holds func(context.Context) bool) {
	c.t.Helper()
	held := false
	defer func() {
		if held {
			return
		}
		for _, n := range c.nodes {
			nodes, err := n.client.ClusterNodes(context.Background()).Result()
			c.t.Logf("%s knows, error %v:\n%s", n.Addr(), err, nodes)
		}
	}()
	until(c.t, what, holds)
	held = true
}
