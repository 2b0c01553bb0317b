package ctx

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/middleware"
)

func own(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error { return save(ctx, "A-1") })
}

func ownDerived(ctx context.Context) error {
	return guard.Do(ctx, "A-1", func(lctx context.Context) error {
		ctx, cancel := context.WithTimeout(lctx, time.Second)
		defer cancel()
		return save(ctx, "A-1")
	})
}

func detached(ctx context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		go func() { _ = save(core.Detach(ctx), "A-1") }()
		return save(context.WithoutCancel(ctx), "A-1")
	})
}

func cleanUp(ctx context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		defer func() { _ = save(context.Background(), "undone") }()
		return save(lctx, "A-1")
	})
}

func logged(ctx context.Context, log *slog.Logger) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		slog.InfoContext(ctx, "begins")
		log.DebugContext(ctx, "begins")
		return save(lctx, "A-1")
	})
}

// What is checked by hand may have any context.
func asks(ctx context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return save(lctx, "A-1")
	})
}

func decoratedWell() func(context.Context, order) error {
	return decorator.WithLockErr(locks, core.Policy{Key: "order:{SKU}"}, func(ctx context.Context, o order) error {
		return save(ctx, o.SKU)
	})
}

func routeWell(r *gin.Engine) {
	r.POST("/orders/:id", middleware.Lock(locks, core.Policy{Key: "order:{path.id}"}), func(c *gin.Context) {
		_ = save(c.Request.Context(), c.Param("id"))
	})
	r.GET("/orders/:id", func(c *gin.Context) {
		_ = save(context.Background(), c.Param("id")) // without a lock
	})
}

func without(w http.ResponseWriter, r *http.Request) { _ = save(context.Background(), "A-1") }

func leaseContext(ctx context.Context) error {
	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	return save(lease.Context(ctx), "A-1")
}

func checks(ctx context.Context) error {
	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	if err := save(ctx, "A-1"); err != nil {
		return err
	}
	return lease.Check(ctx)
}

func behindTheRelease(ctx context.Context) error {
	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	if err := lease.Release(ctx); err != nil {
		return err
	}
	return save(ctx, "A-1")
}

func redsyncBounded(ctx context.Context) error {
	mutex := rs.NewMutex("stock")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.UnlockContext(context.Background())
	ctx, cancel := context.WithDeadline(ctx, mutex.Until())
	defer cancel()
	return save(ctx, "A-1")
}

// The request's context says nothing of the lease, but the library has nothing better.
func redislockRequest(ctx context.Context) error {
	lock, err := client.Obtain(ctx, "stock", time.Minute, nil)
	if err != nil {
		return save(context.Background(), "nothing")
	}
	defer lock.Release(context.Background())
	return save(ctx, "A-1")
}

func etcdHears(ctx context.Context, s *concurrency.Session) error {
	m := concurrency.NewMutex(s, "stock")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	defer m.Unlock(ctx)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-s.Done()
		cancel()
	}()
	return save(ctx, "A-1")
}
