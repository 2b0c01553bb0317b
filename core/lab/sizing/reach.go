package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/servers"
	"github.com/lockaround/lockaround/core/internal/testkit/proxy"
	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/measure"
	"github.com/lockaround/lockaround/core/redislock"
)

// manyKeys: as many keys held at once as one process can be asked to.
func manyKeys(ctx context.Context, b *bed) error {
	all, err := b.engines(ctx, 1)
	if err != nil {
		return err
	}
	memory, own, began := b.memory(ctx), heap(), time.Now()
	leases, err := hold(ctx, all[0], b.many, 10*time.Minute)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%s keys held at once", thousands(b.many))
	b.note(title+", in one process: locked at", "/s", float64(b.many)/time.Since(began).Seconds())
	b.note(title+": memory in Redis", "MB", (b.memory(ctx)-memory)/1e6)
	b.note(title+": memory in the process", "MB", (heap()-own)/1e6)
	began = time.Now()
	leases.release(ctx)
	b.note(title+": given back at", "/s", float64(b.many)/time.Since(began).Seconds())
	return nil
}

func thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// crowd: as many processes as a large deployment has. Each has 20 callers who want 4 keys, and so do 3 other processes.
func crowd(ctx context.Context, b *bed) error {
	const callers, work = 20, time.Second
	all, err := b.engines(ctx, b.processes)
	if err != nil {
		return err
	}
	keys := b.processes
	ctx, stop := context.WithCancel(ctx)
	var sections, failed atomic.Int64
	var gone sync.WaitGroup
	for i, e := range all {
		for c := range callers {
			gone.Go(func() {
				for ctx.Err() == nil {
					l, err := e.Acquire(ctx, core.Policy{Key: key((i + c%4*keys/4) % keys), Name: "stock", Wait: core.Forever})
					if err != nil {
						if ctx.Err() == nil {
							failed.Add(1)
						}
						continue
					}
					_ = contest.Sleep(l.Context(ctx), work)
					if l.Release(context.WithoutCancel(ctx)) == nil {
						sections.Add(1)
					}
				}
			})
		}
	}
	_ = contest.Sleep(ctx, 3*b.last) // until waits are as long as they get
	before := sections.Load()
	us, err := b.perSecond(ctx)
	done := float64(sections.Load()-before) / b.last.Seconds()
	stop()
	gone.Wait()
	title := fmt.Sprintf("%s processes with %d callers each, %s keys that 4 processes want, each locked for %v", thousands(b.processes), callers, thousands(keys), work)
	b.note(title+": sections", "/s", done)
	b.note(title+": share of what the keys allow", "%", 100*done/(float64(keys)/work.Seconds()))
	b.note(title+": a core of Redis", "%", us/1e4)
	b.note(title+": failed", "", float64(failed.Load()))
	return err
}

// tally keeps durations.
type tally struct {
	mu  sync.Mutex
	all []time.Duration
}

func (t *tally) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

// at returns the duration that a share of all does not exceed, in ms.
func (t *tally) at(share float64) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return math.NaN()
	}
	slices.Sort(t.all)
	return float64(t.all[int(share*float64(len(t.all)-1))].Microseconds()) / 1e3
}

// restart: a deployment whose processes begin one after the other. Each locks a key and waits for its first one.
func restart(ctx context.Context, b *bed) error {
	if _, err := b.node.Do(ctx, "SCRIPT", "FLUSH"); err != nil {
		return err
	}
	var firsts tally
	gap := 2 * b.last / time.Duration(b.processes)
	began := time.Now()
	var gone sync.WaitGroup
	var failed atomic.Int64
	us, err := b.cost(ctx, func() error {
		for i := range b.processes {
			if err := contest.Sleep(ctx, time.Until(began.Add(time.Duration(i)*gap))); err != nil {
				return err
			}
			gone.Go(func() {
				started := time.Now()
				e, err := b.engine(2)
				if err == nil {
					var l *core.Lease
					if l, err = e.Acquire(ctx, core.Policy{Key: key(i), Wait: time.Minute}); err == nil {
						firsts.add(time.Since(started))
						err = l.Release(ctx)
					}
				}
				if err != nil {
					failed.Add(1)
				}
			})
		}
		gone.Wait()
		return nil
	})
	title := fmt.Sprintf("%s processes that start within %v", thousands(b.processes), 2*b.last)
	b.note(title+": processor time in Redis for each", "µs", us/float64(b.processes))
	b.note(title+": from its start to its first lock, median", "ms", firsts.at(0.5))
	b.note(title+": from its start to its first lock, 99th percentile", "ms", firsts.at(0.99))
	b.note(title+": failed", "", float64(failed.Load()))
	return err
}

// replicated: free keys, each confirmed by a replica behind a link.
func replicated(ctx context.Context, b *bed) error {
	link, err := proxy.New(b.node.Addr(), proxy.Options[[]byte]{Codec: proxy.Redis, Wait: measure.Until})
	if err != nil {
		return err
	}
	defer link.Close() //nolint:errcheck // nothing follows
	host, port, _ := strings.Cut(link.Addr(), ":")
	replica, err := servers.StartRedis(ctx, servers.Options{Args: []string{"--replicaof", host + " " + port}})
	if err != nil {
		return err
	}
	defer replica.Close() //nolint:errcheck // nothing is written
	for told(ctx, replica, "master_sync_in_progress") != 0 || told(ctx, b.node, "connected_slaves") == 0 {
		if err := contest.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	for _, trip := range []time.Duration{-1, 0, 100 * time.Microsecond, 500 * time.Microsecond, time.Millisecond} {
		title, o := "a free key, not confirmed", []redislock.Option(nil)
		restore := func() {}
		if trip >= 0 {
			title, o = fmt.Sprintf("a free key, confirmed by a replica behind a link of %v", trip), []redislock.Option{redislock.WithReplicas(1, time.Second)}
			if trip == 0 {
				title = "a free key, confirmed by a replica on the same machine"
			}
			restore = link.Delay(trip/2, trip/2)
		}
		e, err := b.engineBy(redis.NewClient(&redis.Options{Addr: b.node.Addr(), PoolSize: 80, ReadTimeout: 3 * time.Second}), o)
		if err != nil {
			return err
		}
		for _, callers := range []int{1, 64} {
			n, err := loop(ctx, e, callers, b.last/2, ownKeys)
			if err != nil {
				return err
			}
			b.note(fmt.Sprintf("%s, %d at once: sections", title, callers), "/s", float64(n)/(b.last/2).Seconds())
		}
		if trip > 0 { // what the link adds in fact
			through := redis.NewClient(&redis.Options{Addr: link.Addr()})
			var pings tally
			for range 100 {
				began := time.Now()
				if err := through.Ping(ctx).Err(); err != nil {
					return errors.Join(err, through.Close())
				}
				pings.add(time.Since(began))
			}
			b.note(fmt.Sprintf("a link of %v: a round trip in fact", trip), "ms", pings.at(0.5))
			_ = through.Close()
		}
		restore()
	}
	return nil
}

// clustered: free keys, spread over masters.
func clustered(ctx context.Context, b *bed) error {
	e, err := b.engine(20)
	if err != nil {
		return err
	}
	if err := e.Ping(ctx); err != nil {
		return err
	}
	before := b.used(ctx)
	n, err := loop(ctx, e, 64, b.last, ownKeys)
	if err != nil {
		return err
	}
	total, most := 0.0, 0.0
	for i, us := range b.used(ctx) {
		total, most = total+us-before[i], max(most, us-before[i])
	}
	title := fmt.Sprintf("a Cluster of %d, 64 callers with free keys", len(b.all))
	b.note(title+": sections", "/s", float64(n)/b.last.Seconds())
	b.note(title+": processor time of all masters for a section", "µs", total/float64(n))
	b.note(title+": processor time of the busiest master for a section", "µs", most/float64(n))
	return nil
}
