package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockaround/lockaround/core/internal/testkit"
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
	n, err := startNode(ctx, "redis-server", Options{Args: args}, func(n *Node) ([]string, error) {
		return slices.Concat(inMemory, replicating, []string{"--cluster-port", n.ports[1], "--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"}), nil
	})
	if err != nil {
		return err
	}
	c.Nodes = append(c.Nodes, n)
	n.id = text(n.Do(ctx, "CLUSTER", "MYID"))
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
	return c.Nodes[0].do(ctx, "CLUSTER", "MEET", "127.0.0.1", n.ports[0], n.ports[1])
}

// Slot returns the slot of a Redis key, as the servers compute it.
func (c *Cluster) Slot(ctx context.Context, key string) (int, error) {
	answer, err := c.Nodes[0].Do(ctx, "CLUSTER", "KEYSLOT", key)
	slot, _ := answer.(int64) // unless there is an error
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
		if n := r.nodes[0]; n != nil && !slices.Contains(masters, n) {
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
		keys, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", slot, 100)
		if err != nil {
			return err
		}
		if len(list(keys, nil)) == 0 {
			break
		}
		for _, key := range list(keys, nil) {
			if err := from.do(ctx, "MIGRATE", "127.0.0.1", to.ports[0], key, 0, 10_000, "REPLACE"); err != nil {
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
			mine := opinion(text(n.Do(ctx, "CLUSTER", "NODES")))
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
			if err != nil || slices.ContainsFunc(ranges, func(r slotRange) bool { return len(r.nodes) != 1+c.replicas }) {
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
	return strings.Contains(text(n.Do(ctx, "CLUSTER", "INFO")), "cluster_state:ok\r\n")
}

// slotRange is a node's range of slots: the master first. A node that is not known is nil.
type slotRange struct {
	first, last int64
	nodes       Nodes
}

// ranges says which node has which slots, as n sees it, in the order of the slots.
func (c *Cluster) ranges(ctx context.Context, n *Node) (ranges []slotRange, err error) {
	answer, err := n.Do(ctx, "CLUSTER", "SLOTS") // which is what clients go by
	for _, one := range list(answer, nil) {
		var r slotRange
		for i, part := range list(one, nil) { // first last [address port name …] …
			switch of := part.(type) {
			case int64:
				if i == 0 {
					r.first = of
				}
				r.last = of
			case []any:
				r.nodes = append(r.nodes, c.by(func(n *Node) bool { return len(of) > 2 && of[2] == n.id }))
			}
		}
		ranges = append(ranges, r)
	}
	slices.SortFunc(ranges, func(a, b slotRange) int { return cmp.Compare(a.first, b.first) })
	return ranges, err
}

// who returns the nodes that have a slot, the master first, as n sees it. It is empty if n does not say.
func (c *Cluster) who(ctx context.Context, n *Node, slot int) Nodes {
	ranges, _ := c.ranges(ctx, n) // one that does not answer sees nobody
	for _, r := range ranges {
		if r.first <= int64(slot) && int64(slot) <= r.last {
			return r.nodes.Without(nil)
		}
	}
	return nil
}

// until is [testkit.Condition], and says what each node knows if it waits in vain.
func (c *Cluster) until(ctx context.Context, what string, holds func() bool) error {
	err := testkit.Condition(ctx, what, holds)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, n := range c.Serving() {
		nodes := text(n.Do(ctx, "CLUSTER", "NODES")) // empty if it does not answer
		err = fmt.Errorf("%w\n%s knows:\n%s", err, n.Addr(), nodes)
	}
	return err
}
