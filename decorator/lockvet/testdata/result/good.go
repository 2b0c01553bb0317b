package result

import (
	"context"
	"errors"
	"log"
	"sync"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/lockaround/lockaround/core"
)

func deferred(ctx context.Context, p core.Policy) error {
	lease, err := locks.Acquire(ctx, p)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(ctx) }()
	if sold() {
		return errSold
	}
	return work(lease.Context(ctx))
}

func section(ctx context.Context) (err error) {
	section, err := guard.Enter(ctx, "A-1")
	if err != nil {
		return err
	}
	defer section.Leave(&err)
	return work(section.Context())
}

func handedOut(ctx context.Context, p core.Policy) (*core.Lease, error) {
	lease, err := locks.Acquire(ctx, p)
	if err != nil {
		return nil, err
	}
	return lease, nil
}

func named(ctx context.Context, p core.Policy) (lease *core.Lease, err error) {
	lease, err = locks.Acquire(ctx, p)
	return
}

func direct(ctx context.Context, p core.Policy) (*core.Lease, error) { return locks.Acquire(ctx, p) }

func byTheLease(ctx context.Context, p core.Policy) {
	lease, err := locks.Acquire(ctx, p)
	if err != nil {
		log.Println(err)
	}
	if lease != nil {
		defer lease.Release(ctx)
	}
}

func again(ctx context.Context, p core.Policy) error {
	var lease *core.Lease
	var err error
	for range 3 {
		if lease, err = locks.Acquire(ctx, p); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	return work(lease.Context(ctx))
}

func cases(ctx context.Context, p core.Policy) error {
	lease, err := locks.Acquire(ctx, p)
	switch {
	case errors.Is(err, core.ErrBusy), errors.Is(err, core.ErrTimeout):
		return nil
	case err != nil:
		return err
	}
	return lease.Release(ctx)
}

func tagged(ctx context.Context, p core.Policy) error {
	switch lease, err := locks.Acquire(ctx, p); err {
	case nil:
		return lease.Release(ctx)
	default:
		return err
	}
}

func orElse(ctx context.Context, p core.Policy) error {
	if lease, err := locks.Acquire(ctx, p); err == nil {
		defer lease.Release(ctx)
		return work(lease.Context(ctx))
	} else if errors.Is(err, core.ErrBusy) {
		return nil
	}
	return errSold
}

func handed(ctx context.Context, p core.Policy) error {
	lease, err := locks.Acquire(ctx, p)
	if err != nil {
		return err
	}
	go func() {
		defer lease.Release(ctx)
		_ = work(lease.Context(ctx))
	}()
	return nil
}

func notAgain(ctx context.Context, p core.Policy) error {
	fallback := false
	lease, err := locks.Acquire(ctx, p)
	if err != nil {
		fallback = true
	}
	if !fallback {
		return lease.Release(ctx)
	}
	return nil
}

func redsyncDeferred() error {
	mutex := rs.NewMutex("stock")
	if err := mutex.Lock(); err != nil {
		return err
	}
	defer func() {
		if ok, err := mutex.Unlock(); !ok || err != nil {
			log.Println(err)
		}
	}()
	if sold() {
		return errSold
	}
	return nil
}

func redsyncEveryPath() error {
	mutex := rs.NewMutex("stock")
	if err := mutex.Lock(); err != nil {
		return err
	}
	if sold() {
		mutex.Unlock()
		return errSold
	}
	_, err := mutex.Unlock()
	return err
}

// By its value another process may release the lock.
func redsyncByValue() (string, error) {
	mutex := rs.NewMutex("stock")
	if err := mutex.Lock(); err != nil {
		return "", err
	}
	return mutex.Value(), nil
}

func redsyncUnlock() (func(), error) {
	mutex := rs.NewMutex("stock")
	if err := mutex.Lock(); err != nil {
		return nil, err
	}
	return func() { mutex.Unlock() }, nil
}

func redsyncMany(keys []string) (all []*redsync.Mutex, err error) {
	for _, key := range keys {
		mutex := rs.NewMutex(key)
		if err := mutex.Lock(); err != nil {
			return all, err
		}
		all = append(all, mutex)
	}
	return all, nil
}

func redsyncOfOthers(all []*redsync.Mutex, byKey map[string]*redsync.Mutex) error {
	for _, mutex := range all {
		if err := mutex.Lock(); err != nil {
			return err
		}
	}
	mutex := byKey["stock"]
	return mutex.Lock()
}

type mutexes struct {
	mu  sync.Mutex
	all map[string]*redsync.Mutex
}

func (m *mutexes) lock(key string) error {
	mutex := rs.NewMutex(key)
	m.all[key] = mutex
	return mutex.Lock()
}

func (s *store) Lock() error { return s.mutex.Lock() }

func (s *store) Unlock() error {
	_, err := s.mutex.Unlock()
	return err
}

func (s *store) byAMethod() error {
	if err := s.mutex.Lock(); err != nil {
		return err
	}
	defer s.Unlock()
	if sold() {
		return errSold
	}
	_, err := s.mutex.Unlock()
	return err
}

func redislockOr(ctx context.Context) error {
	lock, err := client.Obtain(ctx, "stock", time.Second, nil)
	if err != nil && !errors.Is(err, redislock.ErrNotObtained) {
		return err
	}
	if lock == nil {
		return nil
	}
	defer lock.Release(ctx)
	return work(ctx)
}

// The lock is the session's, and ends with it.
func etcdSession(ctx context.Context, s *concurrency.Session) error {
	defer s.Close()
	m := concurrency.NewMutex(s, "stock")
	if err := m.Lock(ctx); err != nil {
		return err
	}
	return work(ctx)
}

func etcdElected(ctx context.Context, s *concurrency.Session) error {
	e := concurrency.NewElection(s, "leader")
	if err := e.Campaign(ctx, "me"); err != nil {
		return err
	}
	<-s.Done()
	return nil
}

func sync_(m *sync.Mutex) {
	m.Lock()
	defer m.Unlock()
}

func blankedAndRead(ctx context.Context, p core.Policy) error {
	lease, err := locks.Acquire(ctx, p)
	_ = err
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	return work(ctx)
}
