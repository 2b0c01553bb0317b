// Package leaderelection has the shape of Kubernetes' client-go/tools/leaderelection, for
// programs that come from there:
//
//	leaderelection.RunOrDie(ctx, leaderelection.Config{
//		Locks: locks, Name: "controller", LeaseDuration: 15 * time.Second,
//		Callbacks: leaderelection.Callbacks{OnStartedLeading: run, OnStoppedLeading: stop, OnNewLeader: tell},
//	})
//
// What differs: the lease is kept until OnStartedLeading has returned, so that no other process
// leads beside it; RunOrDie campaigns again after a term, until ctx ends; a renewal needs no
// RenewDeadline and a candidate no RetryPeriod, since the engine renews and the store wakes;
// and who leads is named by the term, a number that rises.
package leaderelection

import (
	"context"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/leader"
)

// Config is what an election is run with. All but LeaseDuration and OnNewLeader is required.
type Config struct {
	Locks         *core.Engine
	Name          string        // of the lock, and in telemetry
	LeaseDuration time.Duration // how long a dead leader keeps others waiting; zero is core.DefaultTTL
	Callbacks     Callbacks
}

// Callbacks are called as in client-go.
type Callbacks struct {
	OnStartedLeading func(ctx context.Context)
	OnStoppedLeading func()
	OnNewLeader      func(term int64, mine bool) // 0 if nobody leads
}

// RunOrDie runs an election until ctx ends. It panics if the configuration cannot work.
func RunOrDie(ctx context.Context, c Config) {
	leader := leader.Must(c.Locks, core.Policy{Name: c.Name, Key: c.Name, TTL: c.LeaseDuration}, func(ctx context.Context) error {
		defer c.Callbacks.OnStoppedLeading()
		c.Callbacks.OnStartedLeading(ctx)
		return nil
	})
	if c.Callbacks.OnNewLeader != nil {
		news, err := leader.Observe(ctx)
		if err != nil {
			panic(err)
		}
		told := make(chan struct{})
		defer func() { <-told }()
		go func() {
			defer close(told)
			for n := range news {
				c.Callbacks.OnNewLeader(n.Term, n.Mine)
			}
		}()
	}
	_ = leader.Run(ctx) // ctx has ended, or the engine is closed
}
