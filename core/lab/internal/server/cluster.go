package server

import (
	"context"
	"errors"
	"slices"

	"github.com/lockaround/lockaround/core/internal/servers"
)

const shards = 3

// Sharded is a Redis Cluster: three masters that share the slots, each with a replica.
type Sharded struct {
	*servers.Cluster
	masters []string // unless others have become so unasked
}

func startSharded(ctx context.Context) (*Sharded, error) {
	c, err := servers.StartCluster(ctx, shards, 1, "--cluster-node-timeout", "1000")
	if err != nil {
		return nil, err
	}
	s := &Sharded{Cluster: c}
	if _, err := s.noted(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Masters returns the addresses of the masters.
func (c *Sharded) Masters(ctx context.Context) ([]string, error) {
	masters, err := c.Cluster.Masters(ctx)
	return slices.Sorted(slices.Values(masters.Addrs())), err
}

// Restart kills all nodes and starts them again, with no data but what each knows of the
// others.
func (c *Sharded) Restart(ctx context.Context) error {
	if err := c.Nodes.Restart(ctx); err != nil {
		return err
	}
	return c.Settled(ctx)
}

// MoveAway moves a slot with its keys to another master and, when all know, back.
func (c *Sharded) MoveAway(ctx context.Context, slot int) error {
	home, err := c.Master(ctx, slot)
	if err != nil {
		return err
	}
	masters, err := c.Cluster.Masters(ctx)
	if err != nil {
		return err
	}
	if err := c.Move(ctx, slot, masters.Without(home)[0]); err != nil {
		return err
	}
	return c.Move(ctx, slot, home)
}

// FailOver promotes the replica of a slot's master, which loses nothing.
func (c *Sharded) FailOver(ctx context.Context, slot int) error {
	if _, err := c.Cluster.FailOver(ctx, slot); err != nil {
		return err
	}
	_, err := c.noted(ctx)
	return err
}

// CutReplication keeps what is written to a slot's master from now on from its replica.
func (c *Sharded) CutReplication(ctx context.Context, slot int) error {
	m, err := c.Master(ctx, slot)
	if err != nil {
		return err
	}
	return m.CutReplication(ctx)
}

// Hush makes requests to write to a slot's master wait, and returns when its replica has
// all that it has acknowledged.
func (c *Sharded) Hush(ctx context.Context, slot int) error {
	m, err := c.Master(ctx, slot)
	if err != nil {
		return err
	}
	r, err := c.Replica(ctx, slot)
	if err != nil {
		return err
	}
	return m.Hush(ctx, servers.Nodes{r})
}

// KillMaster returns when the master of a slot is dead and another one is in its place.
func (c *Sharded) KillMaster(ctx context.Context, slot int) error {
	m, err := c.Master(ctx, slot)
	if err != nil {
		return err
	}
	if err := errors.Join(m.Kill(), c.Promoted(ctx, slot, m)); err != nil {
		return err
	}
	_, err = c.noted(ctx)
	return err
}

// KillReplica kills that of a slot's master.
func (c *Sharded) KillReplica(ctx context.Context, slot int) error {
	r, err := c.Replica(ctx, slot)
	if err != nil {
		return err
	}
	return r.Kill()
}

// Mend starts what is dead. See [Mender].
func (c *Sharded) Mend(ctx context.Context) (unasked bool, err error) {
	if err := c.Revive(ctx); err != nil {
		return false, err
	}
	for _, n := range c.Nodes {
		if err := n.Readmit(ctx); err != nil {
			return false, err
		}
	}
	if err := c.Whole(ctx); err != nil {
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
	news = !slices.Equal(masters, c.masters)
	c.masters = masters
	return news, nil
}
