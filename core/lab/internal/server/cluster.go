package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/internal/redistest"
)

const (
	slots  = 16384
	shards = 3
)

// Sharded is a Redis Cluster: three masters that share the slots, each with a replica. A
// slot without a master does not stop the others. It is for one goroutine.
type Sharded struct {
	several
	ids     []string // of the nodes, in their order
	masters []string // unless others have become so unasked
}

// startSharded returns when every node knows all others and serves.
func startSharded(ctx context.Context) (c *Sharded, err error) {
	c = &Sharded{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	for i := range 2 * shards {
		if err := c.add(ctx, i); err != nil {
			return c, err
		}
	}
	if err := until(ctx, "the nodes to agree", c.agree); err != nil {
		return c, err
	}
	for i, n := range c.several[shards:] {
		if err := n.do(ctx, "CLUSTER", "REPLICATE", c.ids[i]); err != nil {
			return c, err
		}
	}
	_, err = c.Mend(ctx)
	return c, err
}

// add starts the nth node and has it meet the others. The first ones are masters.
func (c *Sharded) add(ctx context.Context, n int) error {
	bus, err := freeAddr()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(bus)
	if err != nil {
		return err
	}
	added, err := startNode(ctx, slices.Concat(replicating, []string{
		"--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no",
	})...)
	if err != nil {
		return err
	}
	c.several = append(c.several, added)
	id, err := added.client.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		return err
	}
	c.ids = append(c.ids, id)
	if err := added.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", n+1); err != nil {
		return err
	}
	if n < shards {
		c.masters = append(c.masters, added.Addr)
		if err := added.do(ctx, "CLUSTER", "ADDSLOTSRANGE", n*slots/shards, (n+1)*slots/shards-1); err != nil {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	host, own, err := net.SplitHostPort(added.Addr)
	if err != nil {
		return err
	}
	return c.several[0].do(ctx, "CLUSTER", "MEET", host, own, port)
}

// Masters returns the addresses of the masters that are alive.
func (c *Sharded) Masters(ctx context.Context) ([]string, error) {
	var out []string
	for _, n := range c.several {
		if !n.dead && n.told(ctx, "role") == "master" {
			out = append(out, n.Addr)
		}
	}
	slices.Sort(out)
	return out, ctx.Err()
}

// Restart kills all nodes and starts them again, with no data but what each knows of the
// others.
func (c *Sharded) Restart(ctx context.Context) error {
	c.die()
	if err := c.revive(ctx); err != nil {
		return err
	}
	return until(ctx, "the nodes to agree", c.agree)
}

// Slot returns the slot of a Redis key.
func (c *Sharded) Slot(ctx context.Context, key string) (int, error) {
	slot, err := c.several[0].client.ClusterKeySlot(ctx, key).Result()
	return int(slot), err
}

// Move moves a slot with its keys to the next master and, when all know, back, as
// redis-cli does.
func (c *Sharded) Move(ctx context.Context, slot int) error {
	home, err := c.master(ctx, slot)
	if err != nil {
		return err
	}
	var away *node
	for _, addr := range c.masters {
		if addr != home.Addr {
			away = c.at(addr)
		}
	}
	if err := c.move(ctx, slot, home, away); err != nil {
		return err
	}
	return c.move(ctx, slot, away, home)
}

func (c *Sharded) move(ctx context.Context, slot int, from, to *node) error {
	host, port, err := net.SplitHostPort(to.Addr)
	if err != nil {
		return err
	}
	if err := errors.Join(
		to.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", c.id(from)),
		from.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", c.id(to)),
	); err != nil {
		return err
	}
	for {
		keys, err := from.client.ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			if err := from.do(ctx, "MIGRATE", host, port, key, 0, 10_000, "REPLACE"); err != nil {
				return err
			}
		}
	}
	for _, n := range append(several{to, from}, c.without(to).without(from)...) {
		if !slices.Contains(c.masters, n.Addr) {
			continue
		}
		if err := n.do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", c.id(to)); err != nil {
			return err
		}
	}
	return until(ctx, "the nodes to agree", c.agree)
}

// FailOver has a replica of a slot's master take its place, and lose nothing.
func (c *Sharded) FailOver(ctx context.Context, slot int) error {
	old, err := c.master(ctx, slot)
	if err != nil {
		return err
	}
	next, err := c.replica(ctx, slot)
	if err != nil {
		return err
	}
	if err := next.do(ctx, "CLUSTER", "FAILOVER"); err != nil {
		return err
	}
	return c.promoted(ctx, slot, old)
}

// CutReplication keeps what is written to a slot's master from now on from its replica.
func (c *Sharded) CutReplication(ctx context.Context, slot int) error {
	m, err := c.master(ctx, slot)
	if err != nil {
		return err
	}
	return m.cut(ctx)
}

// Hush has requests to write to a slot's master wait, and returns when its replica has
// all that it has acknowledged.
func (c *Sharded) Hush(ctx context.Context, slot int) error {
	m, err := c.master(ctx, slot)
	if err != nil {
		return err
	}
	r, err := c.replica(ctx, slot)
	if err != nil {
		return err
	}
	return m.hush(ctx, several{r})
}

// KillMaster returns when the master of a slot is dead and another one is in its place.
func (c *Sharded) KillMaster(ctx context.Context, slot int) error {
	m, err := c.master(ctx, slot)
	if err != nil {
		return err
	}
	m.die()
	return c.promoted(ctx, slot, m)
}

// KillReplica kills that of a slot's master.
func (c *Sharded) KillReplica(ctx context.Context, slot int) error {
	r, err := c.replica(ctx, slot)
	if err != nil {
		return err
	}
	r.die()
	return nil
}

// Redirections is how often the nodes that are alive have sent clients on.
func (c *Sharded) Redirections(ctx context.Context) (moved, ask int64) {
	for _, n := range c.several {
		for line := range strings.Lines(n.client.Info(ctx, "errorstats").Val()) {
			var count int64
			if _, err := fmt.Sscanf(line, "errorstat_MOVED:count=%d", &count); err == nil {
				moved += count
			}
			if _, err := fmt.Sscanf(line, "errorstat_ASK:count=%d", &count); err == nil {
				ask += count
			}
		}
	}
	return moved, ask
}

// Mend starts what is dead. See [Mender].
func (c *Sharded) Mend(ctx context.Context) (unasked bool, err error) {
	if err := c.revive(ctx); err != nil {
		return false, err
	}
	for _, n := range c.several {
		if err := n.readmit(ctx); err != nil {
			return false, err
		}
	}
	if err := until(ctx, "the replicas to be in sync", func(ctx context.Context) bool {
		masters, err := c.Masters(ctx)
		return err == nil && len(masters) == shards && !slices.ContainsFunc(masters, func(addr string) bool { return !c.at(addr).serves(ctx, 1) })
	}); err != nil {
		return false, err
	}
	if err := until(ctx, "the nodes to agree", c.agree); err != nil {
		return false, err
	}
	return c.noted(ctx)
}

// noted remembers who is a master, and reports whether that is new.
func (c *Sharded) noted(ctx context.Context) (news bool, err error) {
	masters, err := c.Masters(ctx)
	if err != nil {
		return false, err
	}
	news = !slices.Equal(masters, slices.Sorted(slices.Values(c.masters)))
	c.masters = masters
	return news, nil
}

// promoted returns when all nodes that are alive know another master of the slot than
// old, which serves.
func (c *Sharded) promoted(ctx context.Context, slot int, old *node) error {
	if err := until(ctx, "a promotion", func(ctx context.Context) bool {
		for _, n := range c.several {
			if n.dead {
				continue
			}
			if m := c.owner(ctx, n, slot); m == nil || m == old || !m.well(ctx) {
				return false
			}
		}
		return true
	}); err != nil {
		return err
	}
	_, err := c.noted(ctx)
	return err
}

// well reports whether the node serves its part of the Cluster.
func (n *node) well(ctx context.Context) bool {
	return strings.Contains(n.client.ClusterInfo(ctx).Val(), "cluster_state:ok\r\n")
}

// agree reports whether all nodes that are alive serve and see the same.
func (c *Sharded) agree(ctx context.Context) bool {
	view := ""
	for _, n := range c.several {
		if n.dead {
			continue
		}
		own := redistest.Opinion(n.client.ClusterNodes(ctx).Val())
		if strings.Count(own, "\n") != len(c.several) || !n.well(ctx) || view != "" && own != view {
			return false
		}
		view = own
	}
	return true
}

// ranges is who has a slot, the master first, as a node sees it.
func (c *Sharded) ranges(ctx context.Context, n *node, slot int) []*node {
	all, err := n.client.ClusterSlots(ctx).Result() //nolint:staticcheck // it is what clients go by
	if err != nil {
		return nil
	}
	i := slices.IndexFunc(all, func(r redis.ClusterSlot) bool { return r.Start <= slot && slot <= r.End })
	if i < 0 {
		return nil
	}
	var out []*node
	for _, of := range all[i].Nodes {
		if at := slices.Index(c.ids, of.ID); at >= 0 {
			out = append(out, c.several[at])
		}
	}
	return out
}

// owner is the master of a slot as a node sees it, nil if it sees none.
func (c *Sharded) owner(ctx context.Context, n *node, slot int) *node {
	if all := c.ranges(ctx, n, slot); len(all) > 0 {
		return all[0]
	}
	return nil
}

// master returns that of a slot.
func (c *Sharded) master(ctx context.Context, slot int) (*node, error) {
	for _, n := range c.several {
		if m := c.owner(ctx, n, slot); !n.dead && m != nil {
			return m, nil
		}
	}
	return nil, fmt.Errorf("nobody knows the master of slot %d", slot)
}

// replica returns that of a slot's master.
func (c *Sharded) replica(ctx context.Context, slot int) (*node, error) {
	for _, n := range c.several {
		if all := c.ranges(ctx, n, slot); !n.dead && len(all) > 1 {
			return all[1], nil
		}
	}
	return nil, fmt.Errorf("nobody knows a replica of slot %d", slot)
}

func (c *Sharded) id(n *node) string { return c.ids[slices.Index(c.several, n)] }
