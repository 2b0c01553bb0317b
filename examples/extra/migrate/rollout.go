package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
)

// sale is the argument of the service's method.
type sale struct{ SKU string }

// method is a method of the service, with or without locks around it.
type method = func(context.Context, sale) error

// policy is the new lock's.
var policy = core.Policy{Name: "deduct", Key: "stock:{SKU}", Wait: 5 * time.Second}

// replica is a process of the service, at one step of the roll-out or another.
type replica struct {
	old   func(method) method // puts the old lock around, as the service did before
	locks *core.Engine
	close func() error // of the store's client
}

// libraries open a replica by the name of the library that it moves away from.
var libraries = map[string]func(at string) (*replica, error){
	"redislock": openRedislock,
	"redsync":   openRedsync,
	"etcd":      openEtcd,
}

// step is one of the three releases of the service.
type step int

const (
	oldLock step = 1 + iota
	bothLocks
	newLock
)

// at returns the method as the release of that step has it. The new lock is outside, so
// the code inside is what it was.
func (r *replica) at(s step, sell method) method {
	switch s {
	case oldLock:
		return r.old(sell)
	case bothLocks:
		return decorator.WithLockErr(r.locks, policy, r.old(sell))
	}
	return decorator.WithLockErr(r.locks, policy, sell)
}

// Close closes the engine and the client under it.
func (r *replica) Close() error { return errors.Join(r.locks.Close(), r.close()) }

// stages are the steps of four replicas while the service rolls out.
var stages = []struct {
	replicas [4]step
	what     string
	mayFail  bool // sales may overlap
}{
	{[4]step{1, 1, 1, 1}, "the old lock", false},
	{[4]step{1, 1, 2, 2}, "replicas with both roll out", false},
	{[4]step{2, 2, 2, 2}, "both locks", false},
	{[4]step{2, 2, 3, 3}, "replicas with the new one roll out", false},
	{[4]step{3, 3, 3, 3}, "the new lock", false},
	{[4]step{1, 1, 3, 3}, "without step 2", true},
}

// demonstrate prints what becomes of the sales in each stage.
func demonstrate(ctx context.Context, open func(string) (*replica, error), at string, stage time.Duration, stdout io.Writer) (err error) {
	var replicas [4]*replica
	for i := range replicas {
		if replicas[i], err = open(at); err != nil {
			return err
		}
		defer func(r *replica) { err = errors.Join(err, r.Close()) }(replicas[i])
	}
	if err := replicas[0].locks.Ping(ctx); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%50s  %8s  %6s\n", "sales", "overlaps", "failed")
	var overlapped []string
	for _, s := range stages {
		c := sellFor(ctx, stage, replicas, s.replicas)
		fmt.Fprintf(stdout, "%d %d %d %d  %-35s%6d  %8d  %6d\n", s.replicas[0], s.replicas[1], s.replicas[2], s.replicas[3], s.what, c.sales.Load(), c.overlaps.Load(), c.failed.Load())
		if !s.mayFail && c.overlaps.Load() > 0 {
			overlapped = append(overlapped, s.what)
		}
	}
	if len(overlapped) > 0 {
		return fmt.Errorf("sales overlapped: %q", overlapped)
	}
	return ctx.Err()
}

// counter counts the sales of a stage.
type counter struct{ inside, sales, overlaps, failed atomic.Int64 }

// sell is the service's method: nothing in it excludes another call.
func (c *counter) sell(ctx context.Context, _ sale) error {
	if c.inside.Add(1) > 1 {
		c.overlaps.Add(1)
	}
	defer c.inside.Add(-1)
	select {
	case <-time.After(2 * time.Millisecond):
		c.sales.Add(1)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sellFor sells one article by two callers of each replica, for that long.
func sellFor(ctx context.Context, long time.Duration, replicas [4]*replica, steps [4]step) *counter {
	c := &counter{}
	end := time.Now().Add(long)
	var callers sync.WaitGroup
	for i, r := range replicas {
		sell := r.at(steps[i], c.sell)
		for range 2 {
			callers.Go(func() {
				for time.Now().Before(end) && ctx.Err() == nil {
					if sell(ctx, sale{SKU: "A-1"}) != nil && ctx.Err() == nil {
						c.failed.Add(1)
					}
				}
			})
		}
	}
	callers.Wait()
	return c
}
