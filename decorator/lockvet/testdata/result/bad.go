// Package result has acquisitions whose outcome is not used, and some whose outcome is.
package result

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockaround/lockaround/core"
)

var (
	locks   *core.Engine
	guard   *core.Guard[string]
	rs      *redsync.Redsync
	client  *redislock.Client
	errSold = errors.New("sold")
)

func work(context.Context) error { return nil }
func sold() bool                 { return false }

func errorDropped(ctx context.Context, p core.Policy) {
	lease, _ := locks.Acquire(ctx, p) // want `the error of Engine.Acquire is dropped`
	defer lease.Release(ctx)
	_ = work(ctx)
}

func errorBlanked(ctx context.Context, p core.Policy) {
	lease, err := locks.Acquire(ctx, p) // want `the error of Engine.Acquire is dropped`
	_ = err
	defer lease.Release(ctx)
	_ = work(ctx)
}

func leaseDropped(ctx context.Context, p core.Policy) error {
	_, err := locks.Acquire(ctx, p) // want `the lease of Engine.Acquire is dropped: it is renewed`
	if err != nil {
		return err
	}
	return work(ctx)
}

func bothDropped(ctx context.Context) {
	guard.Acquire(ctx, "A-1") // want `the error of Guard.Acquire is dropped`
	_ = work(ctx)
}

func notReleasedOnAPath(ctx context.Context, p core.Policy) error {
	lease, err := locks.Acquire(ctx, p) // want `the lock of Engine.Acquire is not released on the path that ends at line`
	if err != nil {
		return err
	}
	if sold() {
		return errSold
	}
	defer lease.Release(ctx)
	return work(lease.Context(ctx))
}

func sectionNotLeft(ctx context.Context) (err error) {
	section, err := guard.Enter(ctx, "A-1") // want `the lock of Guard.Enter is not released on the path that ends at line`
	if err != nil {
		return err
	}
	return work(section.Context())
}

func goesOn(ctx context.Context, p core.Policy) error {
	lease, err := locks.Acquire(ctx, p) // want `the lock of Engine.Acquire may not have been granted at line [0-9]+, which releases it`
	if err != nil {
		log.Println("no lock:", err)
	}
	defer lease.Release(ctx)
	return work(ctx)
}

func keptByALoop(ctx context.Context, p core.Policy) error {
	for {
		lease, err := locks.Acquire(ctx, p) // want `the lock of Engine.Acquire is not released on the path that comes back to line`
		if err != nil {
			return err
		}
		if sold() {
			continue
		}
		if err := lease.Release(ctx); err != nil {
			return err
		}
	}
}

func keptByACase(ctx context.Context, p core.Policy) error {
	lease, err := locks.Acquire(ctx, p) // want `the lock of Engine.Acquire is not released on the path that ends at line`
	switch {
	case errors.Is(err, core.ErrBusy):
		return nil
	case err != nil:
		return err
	case sold():
		return errSold
	}
	return lease.Release(ctx)
}

func redsyncDropped() {
	mutex := rs.NewMutex("stock")
	mutex.Lock() // want `the error of Mutex.Lock is dropped`
	defer mutex.Unlock()
}

func redsyncBlank(ctx context.Context) {
	mutex := rs.NewMutex("stock")
	_ = mutex.TryLockContext(ctx) // want `the error of Mutex.TryLockContext is dropped`
	defer mutex.Unlock()
}

func redsyncKept() error {
	mutex := rs.NewMutex("stock")
	if err := mutex.Lock(); err != nil { // want `the lock of Mutex.Lock is not released on the path that ends at line`
		return err
	}
	if sold() {
		return errSold
	}
	_, err := mutex.Unlock()
	return err
}

func redsyncGoesOn() {
	mutex := rs.NewMutex("stock")
	if err := mutex.Lock(); err != nil { // want `the lock of Mutex.Lock may not have been granted at line`
		fmt.Println(err)
	}
	defer mutex.Unlock()
	_ = sold()
}

func redsyncLost() error {
	mutex := rs.NewMutex("stock")
	return mutex.Lock() // want `the lock of Mutex.Lock is not released`
}

type store struct{ mutex *redsync.Mutex }

func (s *store) keptInAField() error {
	if err := s.mutex.Lock(); err != nil { // want `the lock of Mutex.Lock is not released on the path that ends at line`
		return err
	}
	if sold() {
		return errSold
	}
	_, err := s.mutex.Unlock()
	return err
}

func redislockDropped(ctx context.Context) error {
	_, err := client.Obtain(ctx, "stock", time.Second, nil) // want `the lock of Client.Obtain is dropped, so nothing can release it`
	return err
}

func redislockGoesOn(ctx context.Context) {
	lock, err := client.Obtain(ctx, "stock", time.Second, nil) // want `the lock of Client.Obtain may not have been granted at line`
	if err == redislock.ErrNotObtained {
		fmt.Println("could not obtain the lock")
	} else if err != nil {
		log.Fatalln(err)
	}
	defer lock.Release(ctx)
	_ = work(ctx)
}

func redislockKept(ctx context.Context) error {
	lock, err := redislock.Obtain(ctx, nil, "stock", time.Second, nil) // want `the lock of Obtain is not released on the path that ends at line`
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	return lock.Release(ctx)
}

func etcdDropped(ctx context.Context, s *concurrency.Session) {
	m := concurrency.NewMutex(s, "stock")
	m.Lock(ctx) // want `the error of Mutex.Lock is dropped`
	defer m.Unlock(ctx)
}

func etcdCampaignDropped(ctx context.Context, s *concurrency.Session) {
	e := concurrency.NewElection(s, "leader")
	go e.Campaign(ctx, "me") // want `the error of Election.Campaign is dropped`
}

func etcdKept(ctx context.Context, s *concurrency.Session) error {
	m := concurrency.NewMutex(s, "stock")
	if err := m.Lock(ctx); err != nil { // want `the lock of Mutex.Lock is not released on the path that ends at line`
		return err
	}
	if err := work(ctx); err != nil {
		return err
	}
	return m.Unlock(ctx)
}
