package escape

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
	"golang.org/x/sync/errgroup"

	"github.com/lockaround/lockaround/core"
)

func waited(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		var wg sync.WaitGroup
		for range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				_ = index(ctx)
			}()
		}
		wg.Wait()
		return nil
	})
}

func waitedByDefer(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { _ = index(ctx) })
		return index(ctx)
	})
}

func group(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return index(ctx) })
		g.Go(func() error { return index(ctx) })
		return g.Wait()
	})
}

func received(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		done := make(chan error, 1)
		go func() { done <- index(ctx) }()
		select {
		case err := <-done:
			return err
		case <-ctx.Done():
			return <-done
		}
	})
}

func ranged(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		results := make(chan error)
		go func() {
			defer close(results)
			results <- index(ctx)
		}()
		for err := range results {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

func detached(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		go index(core.Detach(ctx))
		go func() {
			ctx := core.Detach(ctx)
			_ = locks.Do(ctx, core.Policy{Key: "index"}, index)
		}()
		return nil
	})
}

func stopped(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		stop := make(chan struct{})
		defer close(stop)
		go beat(stop)
		return index(ctx)
	})
}

func beat(<-chan struct{}) {}

func cancelled(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		beating, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() { _ = index(beating) }()
		return index(ctx)
	})
}

func handed(ctx context.Context) error {
	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	go func() {
		defer lease.Release(ctx)
		_ = index(lease.Context(ctx))
	}()
	return nil
}

func behindTheRelease(ctx context.Context) error {
	mutex := rs.NewMutex("stock")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	err := index(ctx)
	if _, other := mutex.UnlockContext(ctx); err == nil {
		err = other
	}
	go index(ctx)
	return err
}

func renewed(ctx context.Context) error {
	lock, err := client.Obtain(ctx, "stock", time.Minute, nil)
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	go func() {
		for range time.Tick(20 * time.Second) {
			if lock.Refresh(ctx, time.Minute, nil) != nil {
				return
			}
		}
	}()
	return index(ctx)
}

func etcdWaited(ctx context.Context, s *concurrency.Session) error {
	m := concurrency.NewMutex(s, "stock")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	defer m.Unlock(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = index(ctx)
	}()
	<-done
	return nil
}

func without(ctx context.Context) { go index(ctx) }
