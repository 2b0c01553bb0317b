package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/watch"
)

// measuring takes some figures on a fresh server, or on a Cluster of so many masters.
type measuring struct {
	name    string
	masters int
	take    func(context.Context, *bed) error
}

var measures = []measuring{
	{name: "sections", take: sections},
	{name: "hand-overs", take: handOvers},
	{name: "waiters", take: waiters},
	{name: "held", take: held},
	{name: "given up", take: givenUp},
	{name: "processes", take: processes},
	{name: "replicas", take: replicated},
	{name: "many keys", take: manyKeys},
	{name: "crowd", take: crowd},
	{name: "restart", take: restart},
	{name: "cluster of 1", masters: 1, take: clustered},
	{name: "cluster of 3", masters: 3, take: clustered},
	{name: "cluster of 6", masters: 6, take: clustered},
}

// loop has callers lock keys, one after the other and each its own, until the time is over. It returns how many sections there were.
func loop(ctx context.Context, e *core.Engine, callers int, last time.Duration, of func(caller, n int) string) (int, error) {
	var done atomic.Int64
	end := time.Now().Add(last)
	err := each(callers, callers, func(c int) error {
		for n := 0; time.Now().Before(end); n++ {
			l, err := e.Acquire(ctx, core.Policy{Key: of(c, n), Name: "stock", Wait: core.Forever})
			if err != nil {
				return err
			}
			if err := l.Release(ctx); err != nil {
				return err
			}
			done.Add(1)
		}
		return nil
	})
	return int(done.Load()), err
}

func ownKeys(caller, n int) string { return key(caller*100_000 + n%1000) }

// sections: keys that nobody else wants.
func sections(ctx context.Context, b *bed) error {
	for _, callers := range []int{1, 64} {
		e, err := b.engine(20)
		if err != nil {
			return err
		}
		var n int
		us, err := b.cost(ctx, func() (err error) { n, err = loop(ctx, e, callers, b.last/2, ownKeys); return err })
		if err != nil {
			return err
		}
		b.note(fmt.Sprintf("a section of a free key, one of %d at once: processor time in Redis", callers), "µs", us/float64(n))
	}
	return nil
}

// handOvers: one key that two processes want all the time.
func handOvers(ctx context.Context, b *bed) error {
	all, err := b.engines(ctx, 2)
	if err != nil {
		return err
	}
	var n atomic.Int64
	us, err := b.cost(ctx, func() error {
		return each(2, 2, func(i int) error {
			done, err := loop(ctx, all[i], 1, b.last/2, func(int, int) string { return "hot" })
			n.Add(int64(done))
			return err
		})
	})
	b.note("a section of a key that goes from one process to another: processor time in Redis", "µs", us/float64(n.Load()))
	return err
}

// waiters: a process that waits for many keys which another one has.
func waiters(ctx context.Context, b *bed) error {
	all, err := b.engines(ctx, 2)
	if err != nil {
		return err
	}
	keys := b.keys / 10
	idle, err := b.perSecond(ctx)
	if err != nil {
		return err
	}
	leases, err := hold(ctx, all[0], keys, time.Hour)
	defer leases.release(ctx)
	if err != nil {
		return err
	}
	before := b.memory(ctx)
	waiting, stop := context.WithCancel(ctx)
	var gone sync.WaitGroup
	defer gone.Wait()
	defer stop()
	for i := range keys {
		gone.Go(func() {
			if l, err := all[1].Acquire(waiting, core.Policy{Key: key(i), TTL: time.Hour, Wait: core.Forever}); err == nil {
				_ = l.Release(ctx)
			}
		})
	}
	if err := contest.Sleep(ctx, 3*time.Second); err != nil { // for all to have their places, and the holders' renewals
		return err
	}
	b.note("a process that waits for a key: memory in Redis", "B", (b.memory(ctx)-before)/float64(keys))
	us, err := b.perSecond(ctx)
	b.note("a process that waits for a key: processor time in Redis, a second", "µs", (us-idle)/float64(keys))
	return err
}

// leases are those of one process.
type leases []*core.Lease

// hold has a process lock so many keys.
func hold(ctx context.Context, e *core.Engine, n int, ttl time.Duration) (leases, error) {
	all := make(leases, n)
	return all, each(n, 256, func(i int) (err error) {
		all[i], err = e.Acquire(ctx, core.Policy{Key: key(i), Name: "stock", TTL: ttl})
		return err
	})
}

func (l leases) release(ctx context.Context) {
	_ = each(len(l), 256, func(i int) error { return l[i].Release(ctx) }) // of those that there are
}

// held: keys that one process holds and renews.
func held(ctx context.Context, b *bed) error {
	all, err := b.engines(ctx, 1)
	if err != nil {
		return err
	}
	idle, err := b.perSecond(ctx)
	if err != nil {
		return err
	}
	memory, own := b.memory(ctx), heap()
	const ttl = 3 * time.Second
	leases, err := hold(ctx, all[0], b.keys, ttl)
	defer leases.release(ctx)
	if err != nil {
		return err
	}
	b.note("a key that is held: memory in Redis", "B", (b.memory(ctx)-memory)/float64(b.keys))
	b.note("a key that is held: memory in the process", "B", (heap()-own)/float64(b.keys))
	us, err := b.perSecond(ctx)
	renewals := float64(b.keys) / (ttl / 3).Seconds() // a second
	b.note("a renewal: processor time in Redis", "µs", (us-idle)/renewals)
	return err
}

// givenUp: acquisitions of free keys whose callers have gone before the answer, which was lost.
func givenUp(ctx context.Context, b *bed) error {
	p, err := proxy.New(b.node.Addr(), proxy.Options[[]byte]{Codec: proxy.Redis})
	if err != nil {
		return err
	}
	defer p.Close() //nolint:errcheck // nothing follows
	e, err := b.engineAt(p.Addr(), 20)
	if err != nil {
		return err
	}
	if err := e.Ping(ctx); err != nil {
		return err
	}
	n := b.keys / 10
	restore := p.BlackHole(proxy.ToClient)
	err = each(n, n, func(i int) error {
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		if l, err := e.Acquire(short, core.Policy{Key: key(i)}); err == nil {
			return errors.Join(errors.New("an acquisition without an answer"), l.Release(ctx))
		}
		return nil
	})
	restore()
	p.Cut()
	if err = errors.Join(err, e.Close()); err != nil { // Close gives back what the lost answers granted
		return err
	}
	sum, found := 0.0, 0.0
	client := redis.NewClient(&redis.Options{Addr: b.node.Addr()})
	defer client.Close() //nolint:errcheck // what it was asked it has answered
	for iter := client.Scan(ctx, 0, "la2:*shop/*", 100).Iterator(); iter.Next(ctx); found++ {
		sum += float64(client.MemoryUsage(ctx, iter.Val()).Val())
	}
	b.note("an acquisition that was given up while it was under way: memory in Redis, for ten minutes", "B", sum/max(found, 1))
	return nil
}

// processes: engines that do nothing, and engines that somebody watches.
func processes(ctx context.Context, b *bed) error {
	n := b.processes / 5
	memory, own, routines := b.memory(ctx), heap(), runtime.NumGoroutine()
	idle, err := b.perSecond(ctx)
	if err != nil {
		return err
	}
	all, err := b.engines(ctx, n)
	if err != nil {
		return err
	}
	of := func(v float64) float64 { return v / float64(n) }
	b.note("a process: connections", "", of(told(ctx, b.node, "connected_clients")-1))
	b.note("a process: channels", "", of(told(ctx, b.node, "pubsub_channels")))
	b.note("a process: memory in Redis", "B", of(b.memory(ctx)-memory))
	b.note("a process: goroutines", "", of(float64(runtime.NumGoroutine()-routines)))
	b.note("a process: memory of its engine and client", "B", of(heap()-own))
	us, err := b.perSecond(ctx)
	if err != nil {
		return err
	}
	b.note("a process that does nothing: processor time in Redis, a second", "µs", of(us-idle))
	watching, end := context.WithCancel(ctx)
	defer end()
	if _, err := watch.New(watching, all[0]); err != nil {
		return err
	}
	watched, err := b.perSecond(ctx)
	b.note("a process that is watched: processor time in Redis, a second, more", "µs", of(watched-us))
	return err
}
