package redisserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/internal/testkit/poll"
)

// slots is how many a Cluster has.
const slots = 16384

// Cluster is a Redis Cluster: masters that share the slots evenly, each with as many
// replicas. A slot without a master does not stop the others. It is for one goroutine.
type Cluster struct {
	Nodes             // the masters of the beginning first
	masters, replicas int
}

// StartCluster returns when every node knows all others and serves. More arguments are passed
// to each redis-server.
func StartCluster(ctx context.Context, masters, replicas int, args ...string) (*Cluster, error) {
	c := &Cluster{masters: masters, replicas: replicas}
	if err := c.start(ctx, args); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context, args []string) error {
	for i := range c.masters * (1 + c.replicas) {
		if err := c.add(ctx, i, args); err != nil {
			return err
		}
	}
	if err := c.Settled(ctx); err != nil {
		return err
	}
	for i, n := range c.Nodes[c.masters:] {
		if err := n.do(ctx, "CLUSTER", "REPLICATE", c.Nodes[i%c.masters].id); err != nil {
			return err
		}
	}
	return c.Whole(ctx)
}

// add starts the ith node, which meets the first one.
func (c *Cluster) add(ctx context.Context, i int, args []string) error {
	n, err := start(ctx, Options{Args: slices.Concat(inMemory, replicating, args, []string{
		"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no",
	})}, func(n *Node) ([]string, error) { return []string{"--cluster-port", n.bus}, nil })
	if err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, n)
	if n.id, err = n.Client.Do(ctx, "CLUSTER", "MYID").Text(); err != nil {
		return err
	}
	if err := n.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
		return err
	}
	if i < c.masters {
		if err := n.do(ctx, "CLUSTER", "ADDSLOTSRANGE", i*slots/c.masters, (i+1)*slots/c.masters-1); err != nil {
			return err
		}
	}
	if i == 0 {
		return nil
	}
	return c.Nodes[0].do(ctx, "CLUSTER", "MEET", "127.0.0.1", n.port, n.bus)
}

// Slot returns the slot of a Redis key, as the servers compute it.
func (c *Cluster) Slot(ctx context.Context, key string) (int, error) {
	slot, err := c.Nodes[0].Client.ClusterKeySlot(ctx, key).Result()
	return int(slot), err
}

// Masters returns the masters, in the order of their slots.
func (c *Cluster) Masters(ctx context.Context) (masters Nodes, err error) {
	serving := c.Serving()
	if len(serving) == 0 {
		return nil, errors.New("no node of the Cluster runs")
	}
	ranges, err := c.ranges(ctx, serving[0])
	for _, r := range ranges {
		if n := c.named(r.Nodes[0].ID); n != nil && !slices.Contains(masters, n) {
			masters = append(masters, n)
		}
	}
	return masters, err
}

// Master returns the master of a slot.
func (c *Cluster) Master(ctx context.Context, slot int) (*Node, error) { return c.has(ctx, slot, 0) }

// Replica returns a replica of the slot's master.
func (c *Cluster) Replica(ctx context.Context, slot int) (*Node, error) { return c.has(ctx, slot, 1) }

// has returns who comes at that place of those who have a slot.
func (c *Cluster) has(ctx context.Context, slot, place int) (*Node, error) {
	for _, n := range c.Serving() {
		if all := c.who(ctx, n, slot); len(all) > place {
			return all[place], nil
		}
	}
	return nil, fmt.Errorf("slot %d has %s", slot, []string{"no master", "a master without a replica"}[place])
}

// Move moves a slot with its keys to another master, as redis-cli --cluster reshard does, and
// returns when all nodes know. meanwhile is called when the keys have moved and nobody knows
// yet: who asks for them is sent on with ASK.
func (c *Cluster) Move(ctx context.Context, slot int, to *Node, meanwhile ...func()) error {
	from, err := c.BeginMove(ctx, slot, to)
	if err != nil {
		return err
	}
	for {
		keys, err := from.Client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			if err := from.do(ctx, "MIGRATE", "127.0.0.1", to.port, key, 0, 10_000, "REPLACE"); err != nil {
				return err
			}
		}
	}
	for _, f := range meanwhile {
		f()
	}
	masters, err := c.Masters(ctx)
	if err != nil {
		return err
	}
	for _, n := range append(Nodes{to, from}, masters.Without(to).Without(from)...) {
		if err := n.do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", to.id); err != nil {
			return err
		}
	}
	return c.Settled(ctx)
}

// BeginMove is what Move begins with: the slot's master, which it returns, sends clients on
// for the keys that it does not have.
func (c *Cluster) BeginMove(ctx context.Context, slot int, to *Node) (from *Node, err error) {
	if from, err = c.Master(ctx, slot); err != nil {
		return nil, err
	}
	if err := to.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id); err != nil {
		return nil, err
	}
	return from, from.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
}

// FailOver promotes a replica of the slot's master without losing a write, and returns it.
func (c *Cluster) FailOver(ctx context.Context, slot int) (*Node, error) {
	old, err := c.Master(ctx, slot)
	if err != nil {
		return nil, err
	}
	next, err := c.Replica(ctx, slot)
	if err != nil {
		return nil, err
	}
	if err := next.do(ctx, "CLUSTER", "FAILOVER"); err != nil {
		return nil, err
	}
	return next, c.Promoted(ctx, slot, old)
}

// Promoted returns when all nodes that run know another master of the slot than old, and that
// one serves.
func (c *Cluster) Promoted(ctx context.Context, slot int, old *Node) error {
	return c.until(ctx, "a promotion", func() bool {
		for _, n := range c.Serving().Without(old) {
			if all := c.who(ctx, n, slot); len(all) == 0 || all[0] == old || !all[0].well(ctx) {
				return false
			}
		}
		return true
	})
}

// Settled returns when all nodes that run serve and agree on who has which slot.
func (c *Cluster) Settled(ctx context.Context) error {
	return c.until(ctx, "the nodes to agree", func() bool {
		view := ""
		for _, n := range c.Serving() {
			mine := opinion(n.Client.ClusterNodes(ctx).Val())
			if strings.Count(mine, "\n") != len(c.Nodes) || !n.well(ctx) || view != "" && mine != view {
				return false
			}
			view = mine
		}
		return true
	})
}

// Whole returns when all that was started serves: the replicas are in sync with their masters,
// and all nodes agree.
func (c *Cluster) Whole(ctx context.Context) error {
	if err := c.until(ctx, "the replicas to be in sync", func() bool {
		masters, err := c.Masters(ctx)
		if err != nil || len(masters) != c.masters {
			return false
		}
		for _, n := range masters {
			if !n.supplies(ctx, c.replicas) {
				return false
			}
		}
		for _, n := range c.Nodes {
			ranges, err := c.ranges(ctx, n)
			if err != nil || slices.ContainsFunc(ranges, func(r redis.ClusterSlot) bool { return len(r.Nodes) != 1+c.replicas }) {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	return c.Settled(ctx)
}

// opinion is what CLUSTER NODES says of each node's epoch and slots. A node that has not heard
// of an epoch may lose a slot which it has just been given.
func opinion(nodes string) string {
	var lines []string
	for line := range strings.Lines(nodes) {
		if f := strings.Fields(line); len(f) >= 8 { // id address flags master ping pong epoch link slots…
			lines = append(lines, strings.Join(append([]string{f[0], f[6]}, f[8:]...), " ")+"\n")
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// well reports whether the node serves its part of the Cluster.
func (n *Node) well(ctx context.Context) bool {
	return strings.Contains(n.Client.ClusterInfo(ctx).Val(), "cluster_state:ok\r\n")
}

// ranges is who has which slots, as n sees it, in the order of the slots.
func (c *Cluster) ranges(ctx context.Context, n *Node) ([]redis.ClusterSlot, error) {
	ranges, err := n.Client.ClusterSlots(ctx).Result() // which is what clients go by
	slices.SortFunc(ranges, func(a, b redis.ClusterSlot) int { return a.Start - b.Start })
	return ranges, err
}

// who returns the nodes that have a slot, the master first, as n sees it. It is empty if n does not say.
func (c *Cluster) who(ctx context.Context, n *Node, slot int) (all Nodes) {
	ranges, _ := c.ranges(ctx, n) // one that does not answer sees nobody
	for _, r := range ranges {
		if r.Start > slot || slot > r.End {
			continue
		}
		for _, of := range r.Nodes {
			if known := c.named(of.ID); known != nil {
				all = append(all, known)
			}
		}
	}
	return all
}

func (c *Cluster) named(id string) *Node { return c.by(func(n *Node) bool { return n.id == id }) }

// until is [poll.Condition], and says what each node knows if it waits in vain.
func (c *Cluster) until(ctx context.Context, what string, holds func() bool) error {
	err := poll.Condition(ctx, what, holds)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, n := range c.Serving() {
		nodes := n.Client.ClusterNodes(ctx).Val() // empty if it does not answer
		err = fmt.Errorf("%w\n%s knows:\n%s", err, n.Addr(), nodes)
	}
	return err
}
