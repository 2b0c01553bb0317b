package zkqueue

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

const (
	// pruneEvery is of how many ended items those that are kept no more are deleted, and
	// pruneAtOnce how many at most. Until then they are there, and nobody is told of them.
	pruneEvery  = 16
	pruneAtOnce = 64
	// sweepEvery is how often a process looks for keys to forget, in one part after the
	// other, and sweepAtOnce how many it forgets then.
	sweepEvery  = 15 * time.Second
	sweepAtOnce = 32
)

// overdue reports whether there may be items to delete.
func (c *change) overdue() bool {
	ended := c.Head - 1 - c.Pruned
	return ended >= int64(c.q.rules.KeepCount)+pruneEvery || ended > 0 && c.now >= c.PruneAt
}

// prune deletes items that are kept no more, after a step that is written. If it fails, or
// somebody else has changed the key meanwhile, a later step does it.
func (q *zkQueue) prune(ctx context.Context, before *change) {
	leave, err := q.turns.take(ctx, q.key(before.digest))
	if err != nil {
		return
	}
	defer leave()
	before.again = true
	c, _ := q.load(ctx, before.digest, before)
	if c.cut() == nil {
		_ = c.commit(false)
	}
}

// cut has the change delete what is kept no more.
func (c *change) cut() error {
	n := int(min(c.Head-1-c.Pruned, pruneAtOnce))
	found := make([]*item, n)
	errs := make([]error, n)
	each(n, func(i int) { found[i], errs[i] = c.item(c.Pruned + 1 + int64(i)) })
	c.PruneAt = c.now + max(millis(c.q.rules.KeepFor)/4, 1)
	for i, it := range found {
		sequence := c.Pruned + 1
		switch {
		case errs[i] != nil:
			return errs[i]
		case it == nil: // dropped, or appended again
		case c.keeps(c.q.rules, sequence, c.ended(sequence, it), c.now):
			c.writes = true
			return nil
		default:
			c.ops = append(c.ops,
				&zk.DeleteRequest{Path: c.q.item(c.digest, sequence), Version: -1},
				&zk.DeleteRequest{Path: c.q.id(c.digest, it.ID), Version: -1})
		}
		c.Pruned++
	}
	if c.Pruned < c.Head-1 {
		c.PruneAt = c.now
	}
	c.writes = true
	return nil
}

// sweep forgets keys that have been idle for Rules.KeepFor. The largest of their sequences is kept
// in the node of the queue, for those that come again. What fails is tried again later.
func (q *zkQueue) sweep(ctx context.Context) {
	at, now := q.sweepAt.Load(), time.Now()
	if now.UnixNano() < at || !q.sweepAt.CompareAndSwap(at, now.Add(sweepEvery).UnixNano()) {
		return
	}
	names, err := q.children(ctx, q.idle(rand.IntN(idleParts)))
	if err != nil {
		return
	}
	earliest, _ := q.clock.between()
	var over []entry
	for _, name := range names {
		if e, ok := parseEntry(name); ok && e.kind == idle && e.at <= earliest && len(over) < sweepAtOnce {
			over = append(over, e)
		}
	}
	each(len(over), func(i int) { q.forget(ctx, over[i]) })
	if len(over) == sweepAtOnce {
		q.sweepAt.Store(0)
	}
}

// forget deletes a key that has been idle for long: first its items, step by step.
func (q *zkQueue) forget(ctx context.Context, e entry) {
	for more := true; more; {
		_, err := q.on(ctx, "forget", e.digest, once, func(c *change) error {
			if !c.exists || c.entry != e {
				return errNothing // it has items again
			}
			if more = c.Pruned < c.Head-1; more {
				// Its last item has ended for as long as it is to be kept.
				c.now = max(c.now, e.at)
				return c.cut()
			}
			return c.vanish()
		})
		if err != nil {
			return
		}
	}
}

// vanish deletes the record of a key that has no items.
func (c *change) vanish() error {
	n, err := c.q.get(c.ctx, c.q.base)
	if err != nil {
		return err
	}
	if n == nil {
		return queue.ErrDamaged
	}
	floor, err := strconv.ParseInt(string(n.data), 10, 64)
	if err != nil {
		return queue.ErrDamaged
	}
	_, _, err = c.q.multi(c.ctx, []any{
		&zk.SetDataRequest{Path: c.q.base, Data: strconv.AppendInt(nil, max(floor, c.Sequence), 10), Version: n.stat.Version},
		&zk.DeleteRequest{Path: c.q.key(c.digest), Version: c.version},
		&zk.DeleteRequest{Path: c.q.paths.entry(c.entry), Version: -1},
	})
	if err != nil {
		return err
	}
	return errNothing
}
