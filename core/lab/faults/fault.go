package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/link"
	"github.com/lockaround/lockaround/core/lab/internal/server"
)

// fault is something that goes wrong, and that the laboratory brings about.
type fault struct {
	Name  string
	About string
	// Lossy: the store does not keep what it acknowledged, so that two may claim a lock
	// until the first one's lease would have ended.
	Lossy bool
	Clock bool // it is a server's clock that steps, which no restart delay makes up for
	Reach reach
	Only  server.Kind // the kind of the store's servers that it is about; empty for all
	Alone bool        // it is about a single server only
	// make returns when the fault has gone. It acts on the worker at that place, if it
	// is about one.
	make func(ctx context.Context, w *world, at int) error
}

// reach says who may not be able to lock and to release while there is a fault.
type reach uint8

const (
	nobody reach = iota
	victim       // the worker that it is about, which does not come back
	holder       // the worker that it is about
	all
)

// aimed reports whether a fault is about one worker.
func (f fault) aimed() bool { return f.Reach == victim || f.Reach == holder }

// fits reports whether a fault is about a kind of store.
func (f fault) fits(kind server.Kind) bool {
	return f.Only == "" || f.Only == kind || f.Only == kind.Program() && (!f.Alone || kind.Single())
}

// loses reports whether two may claim a lock after a fault.
func (s store) loses(f fault) bool { return f.Lossy && (s.Delay == 0 || f.Clock) }

// common are those that stores do not have of their own.
var common = []fault{
	{
		Name: "kill", About: "kill -9 of a process in its critical section, and another one in its place", Reach: victim,
		make: func(_ context.Context, w *world, at int) error { return w.kill(at) },
	},
	{
		Name: "pause", About: "SIGSTOP of a process in its critical section, for three TTLs", Reach: holder,
		make: func(ctx context.Context, w *world, at int) error {
			if err := w.workers[at].Stop(); err != nil {
				return err
			}
			return errors.Join(pass(ctx, 3*w.store.Longest), w.workers[at].Cont())
		},
	},
	{
		Name: "latency", About: "every message takes 40 ms longer, to the store and back, for all", Reach: all,
		make: everywhere(time.Second, link.State{Delay: [2]time.Duration{40 * time.Millisecond, 40 * time.Millisecond}}),
	},
	{
		Name: "slow-then-cut", About: "a holder's answers from the store take 200 ms, and when it has a lock, nothing gets through any more for two TTLs", Reach: holder,
		make: func(ctx context.Context, w *world, at int) error {
			l, ttl := w.links[at], w.store.Longest
			defer l.Set(link.State{})
			l.Set(link.State{Delay: [2]time.Duration{link.ToClient: 200 * time.Millisecond}})
			if err := pass(ctx, ttl); err != nil {
				return err
			}
			// Short sections are over by then: it is one that would need to be renewed.
			p := w.workers[at].job.Process
			_, err := w.inside(ctx, 150*time.Millisecond, func(process int) bool { return process == p })
			l.Set(link.State{Hole: [2]bool{true, true}})
			return errors.Join(err, pass(ctx, 2*ttl))
		},
	},
	{
		Name: "partition", About: "nothing gets through between a holder and the store, for two TTLs", Reach: holder,
		make: one(2, link.State{Hole: [2]bool{true, true}}),
	},
	{
		Name: "no-replies", About: "the store does what a holder asks for, and its answers are lost", Reach: holder,
		make: one(2, link.State{Hole: [2]bool{link.ToClient: true}}),
	},
	{
		Name: "no-requests", About: "what a holder asks for is lost on its way", Reach: holder,
		make: one(2, link.State{Hole: [2]bool{link.ToServer: true}}),
	},
	{
		Name: "late-requests", About: "what a process asks for waits on its way, and comes all at once after two TTLs", Reach: holder,
		make: one(2, link.State{Stall: true}),
	},
	{
		Name: "slow-close", About: "a holder's answers take longer than it waits for them, and the store hears a TTL later of the connections that it has closed", Reach: holder,
		make: func(ctx context.Context, w *world, at int) error {
			l, ttl, late := w.links[at], w.store.Longest, w.store.Timeout*6/5
			defer l.Set(link.State{})
			l.Set(link.State{Delay: [2]time.Duration{link.ToClient: late}, Slow: ttl})
			err := pass(ctx, late)
			l.Set(link.State{Slow: ttl})
			return errors.Join(err, pass(ctx, ttl))
		},
	},
	{
		Name: "lost-pushes", Only: server.Redis, About: "the store's pushes are lost, for all",
		make: everywhere(time.Second, link.State{Deaf: true}),
	},
	{
		Name: "reset", About: "all connections are cut", Reach: all,
		make: func(_ context.Context, w *world, _ int) error {
			for _, l := range w.links {
				l.Cut()
			}
			return nil
		},
	},
	{
		Name: "freeze", About: "SIGSTOP of the store, for a TTL", Reach: all,
		make: func(ctx context.Context, w *world, _ int) error {
			if err := w.server.Stop(); err != nil {
				return err
			}
			return errors.Join(pass(ctx, w.store.Longest), w.server.Cont())
		},
	},
	{Name: "script-flush", Only: server.Redis, About: "SCRIPT FLUSH", make: command("SCRIPT", "FLUSH")},
	{Name: "client-kill", Only: server.Redis, About: "CLIENT KILL of all connections that send commands", Reach: all, make: command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")},
	{Name: "subscriber-kill", Only: server.Redis, About: "CLIENT KILL of all connections that pushes go by", make: command("CLIENT", "KILL", "TYPE", "pubsub")},
	{
		Name: "client-pause", Only: server.Redis, About: "CLIENT PAUSE, for more than a TTL", Reach: all,
		make: func(ctx context.Context, w *world, _ int) error {
			d := w.store.Longest * 6 / 5
			return errors.Join(w.tell(ctx, "CLIENT", "PAUSE", d.Milliseconds(), "ALL"), pass(ctx, d))
		},
	},
	{
		Name: "out-of-memory", Only: server.Redis, About: "the store refuses to write, for a second", Reach: all,
		make: func(ctx context.Context, w *world, _ int) error {
			return errors.Join(w.config(ctx, "maxmemory", "1"), pass(ctx, time.Second), w.config(ctx, "maxmemory", "0"))
		},
	},
	{
		Name: "restart", Only: server.Redis, About: "kill -9 of the store, which has saved nothing, and its restart", Lossy: true, Reach: all,
		make: func(ctx context.Context, w *world, _ int) error { return w.server.Restart(ctx) },
	},
	{Name: "flush", Only: server.Redis, About: "FLUSHALL", Lossy: true, Reach: all, make: command("FLUSHALL")},
	{
		Name: "eviction", Only: server.Redis, About: "the store runs out of memory and evicts every key", Lossy: true, Reach: all,
		make: func(ctx context.Context, w *world, _ int) error {
			return errors.Join(w.config(ctx, "maxmemory-policy", "allkeys-lru"), w.config(ctx, "maxmemory", "1"), pass(ctx, 100*time.Millisecond),
				w.config(ctx, "maxmemory", "0"), w.config(ctx, "maxmemory-policy", "noeviction"))
		},
	},
}

// pass lets time go by.
func pass(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// persist repeats what may fail for a while, as when an ensemble elects its leader.
func persist(ctx context.Context, try func() error) error {
	const patience = 20 * time.Second
	for began := time.Now(); ; {
		err := try()
		if err == nil || time.Since(began) > patience {
			return err
		}
		if err := pass(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// one does something to a worker's link, for so many TTLs.
func one(ttls int, s link.State) func(context.Context, *world, int) error {
	return func(ctx context.Context, w *world, at int) error {
		defer w.links[at].Set(link.State{})
		w.links[at].Set(s)
		return pass(ctx, time.Duration(ttls)*w.store.Longest)
	}
}

// everywhere does something to all links.
func everywhere(d time.Duration, s link.State) func(context.Context, *world, int) error {
	return func(ctx context.Context, w *world, _ int) error {
		for _, l := range w.links {
			defer l.Set(link.State{})
			l.Set(s)
		}
		return pass(ctx, d)
	}
}

// command sends one to each server that is to be written to.
func command(words ...any) func(context.Context, *world, int) error {
	return func(ctx context.Context, w *world, _ int) error { return w.tell(ctx, words...) }
}

func (w *world) config(ctx context.Context, name, value string) error {
	return w.tell(ctx, "CONFIG", "SET", name, value)
}

// keptRestart is of stores that keep what they have acknowledged.
var keptRestart = fault{
	Name: "kept-restart", About: "kill -9 of the store, which has all on its disk, and its restart", Reach: all,
	make: func(ctx context.Context, w *world, _ int) error { return w.server.Restart(ctx) },
}

// faultsOf returns the faults of a store whose names match, all if the pattern is empty, or
// why there are none.
func faultsOf(where store, pattern string) ([]fault, error) {
	if pattern == "" {
		pattern = ".*"
	}
	p, err := regexp.Compile("^(" + pattern + ")$")
	if err != nil {
		return nil, err
	}
	var out []fault
	var names []string
	for _, f := range where.faults() {
		names = append(names, f.Name)
		if p.MatchString(f.Name) {
			out = append(out, f)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%q: there is no such fault; there are %s", pattern, strings.Join(names, ", "))
	}
	return out, nil
}

// schedule is the order of faults, without end: all of them, shuffled, and then again. A
// seed gives the same one each time.
type schedule struct {
	faults []fault
	chance *rand.Rand
	rest   []fault
	made   int
}

func newSchedule(faults []fault, seed uint64) *schedule {
	return &schedule{faults: faults, chance: rand.New(rand.NewPCG(seed, 1))}
}

// next returns a fault, with one in three times another one beside it, and how long to let
// things be before. Two at a time are one that is about a worker and one that is not.
func (s *schedule) next() ([]fault, time.Duration) {
	if len(s.rest) == 0 {
		for _, i := range s.chance.Perm(len(s.faults)) {
			s.rest = append(s.rest, s.faults[i])
		}
	}
	n := 1
	if len(s.rest) > 1 && s.rest[0].aimed() != s.rest[1].aimed() && s.chance.IntN(3) == 0 {
		n = 2
	}
	together := s.rest[:n]
	s.rest, s.made = s.rest[n:], s.made+n
	return together, 200*time.Millisecond + time.Duration(s.chance.Int64N(int64(400*time.Millisecond)))
}
