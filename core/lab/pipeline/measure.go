package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/lab/internal/contest"
	"github.com/lockaround/lockaround/core/lab/internal/server"
	"github.com/lockaround/lockaround/core/lab/internal/usage"
)

// plan is what is to be measured.
type plan struct {
	Rounds   int
	Watch    time.Duration
	Callers  []int
	Ways     []way
	Progress func(format string, args ...any)
}

// results are all figures of a plan, each the median over its rounds.
type results struct {
	plan
	machine string
	figures map[cell]figure
}

type cell struct {
	way     string
	callers int
}

// figure is what was measured of a way.
type figure struct {
	rate        float64       // scripts per second
	median, p99 time.Duration // from a caller's wish to its reply
	cpu, server time.Duration // of this process and of Redis for each script
}

func (p plan) run(ctx context.Context) (r results, err error) {
	s, err := server.Start(ctx, server.Redis)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	admin := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer func() { err = errors.Join(err, admin.Close()) }()
	for _, script := range []string{source, sourceMany} {
		if err := admin.ScriptLoad(ctx, script).Err(); err != nil {
			return r, err
		}
	}
	r = results{plan: p, figures: map[cell]figure{}, machine: fmt.Sprintf("%s; %s, go-redis %s", contest.Machine(false), s.Version, redis.Version())}
	all := map[cell][]figure{}
	order := rand.New(rand.NewPCG(1, 0))
	for _, n := range p.Callers {
		for range p.Rounds {
			for _, i := range order.Perm(len(p.Ways)) {
				f, err := p.measure(ctx, p.Ways[i], admin, n)
				if err != nil {
					return r, fmt.Errorf("%s, %d callers: %w", p.Ways[i].name, n, err)
				}
				of := cell{p.Ways[i].name, n}
				all[of] = append(all[of], f)
			}
		}
		for _, w := range p.Ways {
			of := cell{w.name, n}
			r.figures[of] = middle(all[of])
			p.Progress("%3d callers, %-24s %s", n, w.name, r.figures[of])
		}
	}
	return r, nil
}

// measure has callers run the script, each on its own key, as often as they can.
func (p plan) measure(ctx context.Context, w way, admin *redis.Client, callers int) (f figure, err error) {
	send, err := w.open(admin.Options().Addr)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, send.close()) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watching, over atomic.Bool
	var replies atomic.Int64 // that were watched
	took := make([][]time.Duration, callers)
	var all sync.WaitGroup
	for i := range callers {
		key, owner := fmt.Sprint("key-", i), fmt.Sprintf("%032x", i)
		all.Go(func() {
			for !over.Load() && ctx.Err() == nil {
				asked := time.Now()
				said, err := send.run(ctx, key, owner)
				if err == nil && said != owner {
					err = fmt.Errorf("the reply is %s's; want %s's", said, owner)
				}
				if err != nil {
					cancel(err)
					return
				}
				if watching.Load() {
					took[i] = append(took[i], time.Since(asked))
					replies.Add(1)
				}
			}
		})
	}
	time.Sleep(p.Watch / 4)
	before, err := serverTime(ctx, admin)
	watching.Store(true)
	began, used := time.Now(), usage.Processor()
	for first := true; first || replies.Load() == 0 && ctx.Err() == nil; first = false { // a slow machine takes longer for one
		time.Sleep(p.Watch)
	}
	watching.Store(false)
	watched := time.Since(began)
	used = usage.Processor() - used
	after, err2 := serverTime(ctx, admin)
	over.Store(true)
	all.Wait()
	if err := errors.Join(err, err2, context.Cause(ctx)); err != nil {
		return f, err
	}
	sorted := slices.Concat(took...)
	n := len(sorted)
	slices.Sort(sorted)
	return figure{
		rate: float64(n) / watched.Seconds(), median: sorted[n/2], p99: sorted[n*99/100],
		cpu: used / time.Duration(n), server: (after - before) / time.Duration(n),
	}, nil
}

// serverTime is what Redis has used of all cores.
func serverTime(ctx context.Context, admin *redis.Client) (time.Duration, error) {
	info, err := admin.InfoMap(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var sum float64
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][name], 64)
		if err != nil {
			return 0, err
		}
		sum += seconds
	}
	return time.Duration(sum * float64(time.Second)), nil
}

// middle is the median of each figure.
func middle(of []figure) figure {
	at := func(value func(figure) float64) float64 {
		var all []float64
		for _, f := range of {
			all = append(all, value(f))
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	return figure{
		rate:   at(func(f figure) float64 { return f.rate }),
		median: time.Duration(at(func(f figure) float64 { return float64(f.median) })),
		p99:    time.Duration(at(func(f figure) float64 { return float64(f.p99) })),
		cpu:    time.Duration(at(func(f figure) float64 { return float64(f.cpu) })),
		server: time.Duration(at(func(f figure) float64 { return float64(f.server) })),
	}
}

// String is a figure as it is shown.
func (f figure) String() string {
	return fmt.Sprintf("%.1f k/s, median %.0f µs, p99 %.0f µs, CPU %.1f µs, Redis %.1f µs", f.rate/1e3,
		micros(f.median), micros(f.p99), micros(f.cpu), micros(f.server))
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
