package zkqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

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
