// Package ctx has calls under a lock whose context does not end with the lease, and some whose
// context does.
package ctx

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/bsm/redislock"
	"github.com/gin-gonic/gin"
	"github.com/go-redsync/redsync/v4"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/httplock"
)

var (
	locks  *core.Engine
	guard  *core.Guard[string]
	rs     *redsync.Redsync
	client *redislock.Client
	policy core.Policy
	always = context.Background()
)

type order struct{ SKU string }

func save(context.Context, string) error { return nil }

func outer(ctx context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		return save(ctx, "A-1") // want `save gets ctx under the lock: it goes on when the lease is lost; pass lctx, which is cancelled then`
	})
}

func background(ctx context.Context) error {
	return locks.Do(ctx, policy, func(ctx context.Context) error {
		return save(context.Background(), "A-1") // want `save gets context.Background\(\) under the lock`
	})
}

func unnamed(ctx context.Context) error {
	return guard.Do(ctx, "A-1", func(context.Context) error {
		return save(ctx, "A-1") // want `name the function's own context, and pass that`
	})
}

func derived(ctx context.Context) error {
	return locks.Do(ctx, policy, func(inner context.Context) error {
		bounded, cancel := context.WithTimeout(ctx, time.Second) // want `context.WithTimeout gets ctx under the lock`
		defer cancel()
		return save(bounded, "A-1")
	})
}

func request(w http.ResponseWriter, r *http.Request) {
	_ = locks.Do(r.Context(), policy, func(ctx context.Context) error {
		return save(r.Context(), "A-1") // want `save gets r.Context\(\) under the lock`
	})
}

func decorated(ctx context.Context) func(context.Context, order) error {
	return decorator.WithLockErr(locks, core.Policy{Key: "order:{SKU}"}, func(lctx context.Context, o order) error {
		return save(ctx, o.SKU) // want `save gets ctx under the lock`
	})
}

func route(r *gin.Engine) {
	r.POST("/orders/:id", middleware.Lock(locks, core.Policy{Key: "order:{path.id}"}), func(c *gin.Context) {
		_ = save(context.TODO(), c.Param("id")) // want `save gets context.TODO\(\) under the lock: it goes on when the lease is lost; pass the request's context`
	})
}

func handler() http.Handler {
	return httplock.Lock(locks, core.Policy{Key: "order:{query.id}"})(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = save(always, "A-1") // want `save gets always, which never ends, under the lock`
	}))
}

func nested(ctx context.Context) error {
	return locks.Do(ctx, policy, func(lctx context.Context) error {
		return locks.Do(ctx, core.Policy{Key: "b"}, func(ctx context.Context) error { return nil }) // want `locks.Do gets ctx under the lock`
	})
}

func acquired(ctx context.Context) error {
	lease, err := locks.Acquire(ctx, policy)
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	return save(ctx, "A-1") // want `save gets ctx under a lease: it goes on when the lease is lost; pass lease.Context\(ctx\)`
}

func entered(ctx context.Context) (err error) {
	section, err := guard.Enter(ctx, "A-1")
	if err != nil {
		return err
	}
	defer section.Leave(&err)
	return save(ctx, "A-1") // want `save gets ctx in a section: it goes on when the lease is lost; pass section.Context\(\)`
}

func redsyncBackground(ctx context.Context) error {
	mutex := rs.NewMutex("stock")
	if err := mutex.LockContext(ctx); err != nil {
		return err
	}
	defer mutex.Unlock()
	return save(context.Background(), "A-1") // want `save gets context.Background\(\) under the lock of redsync: it goes on when the lease has ended; pass a context that ends with the lease, as of context.WithDeadline\(ctx, mutex.Until\(\)\)`
}

func redislockBackground() error {
	ctx := context.Background()
	lock, err := client.Obtain(ctx, "stock", time.Minute, nil)
	if err != nil {
		return err
	}
	defer lock.Release(ctx)
	slog.InfoContext(ctx, "under the lock")
	return save(ctx, "A-1") // want `save gets ctx, which never ends, under the lock of bsm/redislock`
}

func etcdBackground(ctx context.Context, s *concurrency.Session) error {
	m := concurrency.NewMutex(s, "stock")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	err := save(context.TODO(), "A-1") // want `save gets context.TODO\(\) under the lock of etcd's concurrency`
	if other := m.Unlock(ctx); err == nil {
		err = other
	}
	return err
}
