// Package escape has goroutines that may go on after the release, and some that may not.
package escape

import (
	"context"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/gin-gonic/gin"
	"github.com/go-redsync/redsync/v4"
	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/job"
	"github.com/lockaround/lockaround/middleware"
)

var (
	locks  *core.Engine
	guard  *core.Guard[string]
	rs     *redsync.Redsync
	client *redislock.Client
	policy core.Policy
)

func index(context.Context) error { return nil }

func forgotten(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		go index(ctx) // want `the goroutine is started under the lock of lockaround and may run on after the release; wait for it, or pass core.Detach\(ctx\) if it needs no lock`
		return index(ctx)
	})
}

func literal(ctx context.Context) error {
	return guard.Do(ctx, "A-1", func(ctx context.Context) error {
		go func() { // want `the goroutine is started under the lock`
			_ = index(ctx)
		}()
		return nil
	})
}

func waitedForOutside(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		wg.Go(func() { _ = index(ctx) }) // want `the goroutine is started under the lock`
		return nil
	})
}

func groupOfOthers(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	err := locks.Do(ctx, policy, func(ctx context.Context) error {
		g.Go(func() error { return index(ctx) }) // want `the goroutine is started under the lock`
		return nil
	})
	if other := g.Wait(); err == nil {
		err = other
	}
	return err
}

func nightly() *job.Runner {
	return job.Must(locks, core.Policy{Key: "job"}, func(ctx context.Context) error {
		for range 3 {
			go index(ctx) // want `the goroutine is started under the lock`
		}
		return nil
	}, job.Schedule{})
}

func route(r *gin.Engine) {
	r.POST("/orders/:id", middleware.Lock(locks, core.Policy{Key: "order:{path.id}"}), func(c *gin.Context) {
		go index(c.Copy()) // want `the goroutine is started under the lock`
	})
}

func acquired(ctx context.Context) error {
	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	go index(ctx) // want `the goroutine is started under the lock`
	return nil
}

func waitsTooLate(ctx context.Context) error {
	mutex := rs.NewMutex("stock")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- index(ctx) }() // want `the goroutine is started under the lock of redsync and may run on after the release; wait for it`
	if _, err := mutex.UnlockContext(ctx); err != nil {
		return err
	}
	return <-done
}

func redislockForgotten(ctx context.Context) error {
	lock, err := client.Obtain(ctx, "stock", time.Minute, nil)
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	go func() { _ = index(ctx) }() // want `the goroutine is started under the lock of bsm/redislock`
	return index(ctx)
}

func etcdForgotten(ctx context.Context, s *concurrency.Session) error {
	m := concurrency.NewMutex(s, "stock")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	defer m.Unlock(ctx)
	go index(ctx) // want `the goroutine is started under the lock of etcd's concurrency`
	return nil
}
