package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/servers"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/redislock"
)

// scale is how large the loads are.
type scale struct {
	processes int           // engines at once, of which a deployment consists
	keys      int           // held at once, for what one of them costs
	many      int           // held at once, to see what many cost
	last      time.Duration // how long a load lasts
}

var (
	full  = scale{processes: 1000, keys: 10_000, many: 1_000_000, last: 8 * time.Second}
	brief = scale{processes: 10, keys: 100, many: 1000, last: 200 * time.Millisecond}
)

// bed is a fresh server, or a Cluster, and what was measured there.
type bed struct {
	scale
	node    *servers.Node // the only one, or the first
	all     servers.Nodes
	cluster *servers.Cluster // nil if it is one server
	end     func() error
	opened  sync.Mutex
	closers []func() error
	figures []*taken
}

func start(ctx context.Context, s scale, masters int) (*bed, error) {
	if masters > 0 {
		c, err := servers.StartCluster(ctx, masters, 0)
		if err != nil {
			return nil, err
		}
		return &bed{scale: s, node: c.Nodes[0], all: c.Nodes, cluster: c, end: c.Close}, nil
	}
	n, err := servers.StartRedis(ctx, servers.Options{})
	if err != nil {
		return nil, err
	}
	return &bed{scale: s, node: n, all: servers.Nodes{n}, end: n.Close}, nil
}

func (b *bed) close() error {
	err := each(len(b.closers), 64, func(i int) error { return b.closers[i]() })
	return errors.Join(err, b.end())
}

func (b *bed) note(name, unit string, value float64) {
	b.figures = append(b.figures, &taken{name, unit, []float64{value}})
}

// engine opens an engine with a client of its own, as a process has, with up to that many connections besides its subscription.
func (b *bed) engine(pool int, o ...core.Option) (*core.Engine, error) {
	return b.engineAt(b.node.Addr(), pool, o...)
}

func (b *bed) engineAt(addr string, pool int, o ...core.Option) (*core.Engine, error) {
	if b.cluster != nil {
		return b.engineBy(redis.NewClusterClient(&redis.ClusterOptions{Addrs: b.all.Addrs(), PoolSize: pool}), nil, o...)
	}
	return b.engineBy(redis.NewClient(&redis.Options{Addr: addr, PoolSize: pool}), nil, o...)
}

// engineBy opens an engine on a client, and closes both with the bed.
func (b *bed) engineBy(client redis.UniversalClient, driver []redislock.Option, o ...core.Option) (*core.Engine, error) {
	e, err := core.New(redislock.New(client, driver...), append([]core.Option{
		core.WithNamespace("shop"), core.WithMaxHeld(2_000_000), core.WithMaxWaiters(1_000_000), core.WithLogger(slog.New(slog.DiscardHandler)),
	}, o...)...)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	b.opened.Lock()
	defer b.opened.Unlock()
	b.closers = append(b.closers, func() error { return errors.Join(e.Close(), client.Close()) })
	return e, nil
}

// engines opens n engines that have subscribed.
func (b *bed) engines(ctx context.Context, n int) ([]*core.Engine, error) {
	all := make([]*core.Engine, n)
	return all, each(n, 32, func(i int) (err error) {
		if all[i], err = b.engine(2); err == nil {
			err = all[i].Ping(ctx)
		}
		return err
	})
}

// each does something n times, up to wide of them at once, and returns the first error.
func each(n, wide int, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(wide)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	return g.Wait()
}

// told returns a number of INFO.
func told(ctx context.Context, n *servers.Node, name string) float64 {
	f, _ := strconv.ParseFloat(n.Told(ctx, "everything", name), 64) // 0 if it is none
	return f
}

// used returns the processor time of each server, in µs.
func (b *bed) used(ctx context.Context) (us []float64) {
	for _, n := range b.all {
		us = append(us, 1e6*(told(ctx, n, "used_cpu_user")+told(ctx, n, "used_cpu_sys")))
	}
	return us
}

// busy returns the processor time of all servers, in µs.
func (b *bed) busy(ctx context.Context) (us float64) {
	for _, one := range b.used(ctx) {
		us += one
	}
	return us
}

// cost is the processor time of the servers while do runs, in µs.
func (b *bed) cost(ctx context.Context, do func() error) (float64, error) {
	before := b.busy(ctx)
	err := do()
	return b.busy(ctx) - before, err
}

// perSecond is the processor time of the servers in a second of what goes on by itself, in µs.
func (b *bed) perSecond(ctx context.Context) (float64, error) {
	us, err := b.cost(ctx, func() error { return contest.Sleep(ctx, b.last) })
	return us / b.last.Seconds(), err
}

func (b *bed) memory(ctx context.Context) float64 { return told(ctx, b.node, "used_memory") }

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

func key(i int) string { return fmt.Sprintf("stock:%07d", i) }
