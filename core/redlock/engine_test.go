package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redlock"
	"github.com/lockaround/lockaround/core/testservers"
)

func engines(t *testing.T, n int) []*core.Engine {
	t.Helper()
	var nodes []*redis.Client
	for range 3 {
		c := redis.NewClient(&redis.Options{Addr: testservers.Redis(t).Addr()})
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close the client: %v", err)
			}
		})
		nodes = append(nodes, c)
	}
	d := redlock.New(nodes)
	var all []*core.Engine
	for range n {
		e, err := core.New(d, core.WithNamespace("test"), core.WithStoreTimeout(20*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("close the engine: %v", err)
			}
		})
		all = append(all, e)
	}
	return all
}

func TestEnginesGuardACounter(t *testing.T) {
	const callers, rounds = 4, 25
	var counter int // guarded by the lock, and by nothing else
	var last int64
	var running sync.WaitGroup
	for _, e := range engines(t, 3) {
		for range callers {
			running.Go(func() {
				for range rounds {
					l, err := e.Acquire(context.Background(), core.Policy{Key: "counter", Wait: core.Forever, TTL: 5 * time.Minute})
					if err != nil {
						t.Errorf("acquire: %v", err)
						return
					}
					counter++
					if l.Token() <= last {
						t.Errorf("token %d was granted after token %d", l.Token(), last)
					}
					last = l.Token()
					if err := l.Release(context.Background()); err != nil {
						t.Errorf("release: %v", err)
					}
				}
			})
		}
	}
	running.Wait()
	if want := 3 * callers * rounds; counter != want {
		t.Errorf("a counter that the lock guards is %d after %d increments", counter, want)
	}
}

func TestWhatADriverOfMajoritiesCannotKeepIsRefused(t *testing.T) {
	e := engines(t, 1)[0]
	for name, p := range map[string]core.Policy{
		"shared":      {Key: "k", Mode: core.Shared},
		"a semaphore": {Key: "k", Mode: core.Semaphore, Limit: 2},
		"strict":      {Key: "k", Fairness: core.Strict},
		"a short TTL": {Key: "k", TTL: 50 * time.Millisecond},
	} {
		err := e.Do(context.Background(), p, func(context.Context) error { return nil })
		if !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "redlock") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
