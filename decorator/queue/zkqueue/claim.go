package zkqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/decorator/queue"
)

const (
	// spread is of how many times more keys than it claims a claim chooses.
	spread = 4
	// takenPause is after which time a worker is to look again, if others were faster.
	takenPause = 50 * time.Millisecond
	// atOnce is how many keys are claimed at a time.
	atOnce = 16
)

// Claim names keys that are due. Without any it is one read.
func (q *zkQueue) Claim(ctx context.Context, r queue.ClaimRequest) (queue.Claims, error) {
	if r.Shard < 0 || r.Shard >= q.shards {
		return queue.Claims{}, fmt.Errorf("zkqueue: claim: there is no shard %d of %d", r.Shard, q.shards)
	}
	if err := q.time(ctx); err != nil {
		return queue.Claims{}, failure("claim", err)
	}
	if err := q.changeClaims(ctx, r); err != nil {
		return queue.Claims{}, err
	}
	if r.Max > 0 {
		q.sweep(ctx)
	}
	names, err := q.children(ctx, q.due(r.Shard))
	if err != nil {
		return queue.Claims{}, failure("claim", err)
	}
	now, _ := q.clock.between()
	ready, next := split(names, now)
	few := ready[:min(len(ready), spread*max(r.Max, 0))]
	rand.Shuffle(len(few), func(i, j int) { few[i], few[j] = few[j], few[i] })
	few = few[:min(len(few), max(r.Max, 0))]
	c := queue.Claims{Keys: q.claimAll(ctx, few, r), Next: -1}
	if next >= 0 {
		c.Next = duration(next - now)
	}
	soonest := func(d time.Duration) {
		if c.Next < 0 || d < c.Next {
			c.Next = d
		}
	}
	switch {
	case len(few) < len(ready):
		soonest(0)
	case len(c.Keys) < len(few):
		soonest(takenPause)
	}
	if len(c.Keys) > 0 {
		soonest(r.For)
	}
	return c, nil
}

// split returns the entries of keys that are due, the longest first, and when the next one is, -1
// if there is none.
func split(names []string, now int64) (ready []entry, next int64) {
	next = -1
	for _, name := range names {
		e, ok := parseEntry(name)
		switch {
		case !ok || e.kind == parked:
		case e.kind == since || e.at <= now:
			ready = append(ready, e)
		case next < 0 || e.at < next:
			next = e.at
		}
	}
	slices.SortFunc(ready, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	return ready, next
}

// each calls f for 0 to n-1, a few at a time.
func each(n int, f func(i int)) {
	var all sync.WaitGroup
	for w := range min(n, atOnce) {
		all.Go(func() {
			for i := w; i < n; i += atOnce {
				f(i)
			}
		})
	}
	all.Wait()
}

// claimAll claims keys by their entries, and returns those that nobody else was faster with.
func (q *zkQueue) claimAll(ctx context.Context, few []entry, r queue.ClaimRequest) (keys []string) {
	got := make([]string, len(few))
	each(len(few), func(i int) {
		c, err := q.on(ctx, "claim", few[i].digest, once, func(c *change) error {
			if !c.exists || c.entry != few[i] {
				return errNothing // somebody was faster
			}
			c.claim(r.Worker, millis(r.For))
			c.writes = true
			return nil
		})
		if err == nil {
			got[i] = string(c.Key)
		}
	})
	for _, key := range got {
		if key != "" {
			keys = append(keys, key)
		}
	}
	return keys
}

// changeClaims prolongs claims, and gives up others.
func (q *zkQueue) changeClaims(ctx context.Context, r queue.ClaimRequest) error {
	all := slices.Concat(r.Keep, r.Return)
	worker := queue.Digest(r.Worker)
	errs := make([]error, len(all))
	each(len(all), func(i int) {
		_, errs[i] = q.on(ctx, "claim", queue.Digest(all[i]), false, func(c *change) error {
			switch {
			case !c.exists || c.Worker != worker:
				return errNothing
			case i < len(r.Keep):
				c.claim(r.Worker, millis(r.For))
				c.writes = true
			default:
				c.settle()
				c.writes, c.tells = true, true
			}
			return nil
		})
	})
	for _, err := range errs {
		if err != nil && !errors.Is(err, errNothing) {
			return err
		}
	}
	return nil
}

// errDeaf ends a Listen whose connection is lost.
var errDeaf = errors.New("the connection is lost, so that watches may be")

// lookAtConn is how often a listener looks whether the connection is there. It sends nothing.
const lookAtConn = time.Second

// Listen tells of keys that get due, by a watch on a node of each shard that is written then.
func (q *zkQueue) Listen(ctx context.Context, up func(), due func(shard int, in time.Duration)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex // of up and due
	var ready, all sync.WaitGroup
	ready.Add(q.shards)
	for shard := range q.shards {
		all.Go(func() {
			first := sync.OnceFunc(ready.Done)
			defer first()
			cancel(q.hear(ctx, shard, first, func(in time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				due(shard, in)
			}))
		})
	}
	ready.Wait()
	if ctx.Err() == nil {
		mu.Lock()
		up()
		mu.Unlock()
	}
	all.Wait()
	err := context.Cause(ctx)
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return failure("listen", err)
}

// watched is what was read of the node that wakes listeners.
type watched struct {
	data []byte
	stat *zk.Stat
	next <-chan zk.Event
}

// hear tells of one shard, until ctx or the connection ends. A write whose predecessor was not seen
// counts as one of a key that is due now.
func (q *zkQueue) hear(ctx context.Context, shard int, hears func(), due func(in time.Duration)) error {
	look := time.NewTicker(lookAtConn)
	defer look.Stop()
	if err := q.time(ctx); err != nil {
		return err
	}
	for last, heard := int32(0), false; ; heard = true {
		b, err := call(ctx, func() (watched, error) {
			data, stat, next, err := q.conn.GetW(q.wakeup(shard))
			return watched{data, stat, next}, err
		})
		if errors.Is(err, zk.ErrNoNode) {
			if err = q.create(ctx); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		switch {
		case !heard:
			hears()
		case b.stat.Version == last+1:
			due(q.until(b.data))
		case b.stat.Version != last:
			due(0)
		}
		last = b.stat.Version
		for waits := true; waits; {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-b.next:
				if e.Err != nil {
					return e.Err
				}
				waits = false
			case <-look.C:
				if q.conn.State() != zk.StateHasSession {
					return errDeaf
				}
			}
		}
	}
}

// until is in how much time a key is due.
func (q *zkQueue) until(data []byte) time.Duration {
	at, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return 0
	}
	now, _ := q.clock.between()
	return duration(at - now)
}

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
