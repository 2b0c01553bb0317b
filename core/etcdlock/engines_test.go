package etcdlock_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/testservers"
)

// add reads a number and writes the next one, as whoever holds the lock may.
func add(ctx context.Context, c *clientv3.Client, owner clientv3.Cmp) error {
	r, err := c.Get(ctx, "counter")
	if err != nil {
		return err
	}
	n := 0
	if len(r.Kvs) > 0 {
		if n, err = strconv.Atoi(string(r.Kvs[0].Value)); err != nil {
			return err
		}
	}
	answer, err := c.Txn(ctx).If(owner).Then(clientv3.OpPut("counter", strconv.Itoa(n+1))).Commit()
	if err == nil && !answer.Succeeded {
		err = errors.New("the write of an owner was refused")
	}
	return err
}

func TestFloodIsRefusedBeyondMaxWaiting(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand requests for one key")
	}
	t.Parallel()
	server := testservers.Etcd(t)
	suites.Flood(t, 1000, true, func(t testing.TB) driver.Driver { return etcdlock.New(etcdtest.Client(t, server.Addr())) })
}

func TestGuardedCounterOfManyEnginesCountsEach(t *testing.T) {
	if testing.Short() {
		t.Skip("counts for seconds")
	}
	t.Parallel()
	const engines, callers, rounds = 3, 5, 10
	server := testservers.Etcd(t)
	ctx := within(t)
	var running sync.WaitGroup
	failure := make(chan error, engines*callers)
	for range engines {
		c := etcdtest.Client(t, server.Addr())
		store := etcdlock.New(c)
		locks, err := core.New(store, core.WithNamespace("test"), core.WithStoreTimeout(storeTimeout))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := locks.Close(); err != nil {
				t.Errorf("close the engine: %v", err)
			}
		})
		for range callers {
			running.Go(func() {
				for range rounds {
					l, err := locks.Acquire(ctx, core.Policy{Key: "k", TTL: long, Wait: core.Forever})
					if err == nil {
						err = errors.Join(add(ctx, c, store.IsOwner(l.Token())), l.Release(ctx))
					}
					if err != nil {
						failure <- err
						return
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	receive(t, done, "the load")
	select {
	case err := <-failure:
		t.Fatal(err)
	default:
	}
	r, err := etcdtest.Client(t, server.Addr()).Get(ctx, "counter")
	if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != strconv.Itoa(engines*callers*rounds) {
		t.Errorf("after %d increments the counter is %v, %v", engines*callers*rounds, r.Kvs, err)
	}
}
