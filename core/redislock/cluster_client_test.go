package redislock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// TestClusterConformance runs the suite on three masters, each behind a proxy of
// the check's own.
func TestClusterConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite on one server is enough with -short")
	}
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	open := func(t *testing.T, proxies map[string]*redistest.Proxy) *redis.ClusterClient {
		client := redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: c.Addrs(),
			NewClient: func(o *redis.Options) *redis.Client {
				if p := proxies[o.Addr]; p != nil {
					o.Addr = p.Addr()
				}
				return redis.NewClient(o)
			},
		})
		t.Cleanup(func() {
			if err := client.Close(); err != nil {
				t.Errorf("close the client: %v", err)
			}
		})
		// It has found the servers, as it has at the second command.
		if err := client.ForEachMaster(t.Context(), func(ctx context.Context, m *redis.Client) error { return m.Ping(ctx).Err() }); err != nil {
			t.Fatal(err)
		}
		return client
	}
	// The scripts are known to the servers, so that a request is one command.
	for _, s := range protocol.Scripts() {
		if err := open(t, nil).ScriptLoad(t.Context(), s.Source).Err(); err != nil {
			t.Fatal(err)
		}
	}
	drivertest.Run(t, func(t *testing.T) *drivertest.Harness {
		proxies := make(map[string]*redistest.Proxy)
		for _, addr := range c.Addrs() {
			proxies[addr] = redistest.NewProxy(t, addr)
		}
		each := func(do func(*redistest.Proxy) (undo func())) func() {
			var undo []func()
			for _, p := range proxies {
				undo = append(undo, do(p))
			}
			return func() {
				for _, f := range undo {
					f()
				}
			}
		}
		return &drivertest.Harness{
			Driver:     redislock.New(open(t, proxies)),
			Peer:       redislock.New(open(t, nil)),
			Stall:      func() func() { return each((*redistest.Proxy).Stall) },
			LosePushes: func() func() { return each((*redistest.Proxy).LosePushes) },
			DropReply: func(op drivertest.Op) func() bool {
				var dropped []func() bool
				for _, p := range proxies {
					dropped = append(dropped, p.DropReply(requests[op]))
				}
				return func() bool {
					for _, d := range dropped {
						if d() {
							return true
						}
					}
					return false
				}
			},
			DelayReplies: func(d time.Duration) func() {
				return each(func(p *redistest.Proxy) func() { return p.DelayReplies(d) })
			},
		}
	})
}

// clusterACL is what the package's documentation says that a user needs in a
// Cluster beside the minimum.
var clusterACL = strings.Fields("+cluster|slots +asking")

func TestClusterMinimalACLPermitsLocks(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	c.Do(append([]string{"ACL", "SETUSER", "locks", "reset", "on", ">secret"}, append(minimalACL, clusterACL...)...)...)
	as := func() *engine {
		return newEngine(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Username: "locks", Password: "secret"}))
	}
	a, b := as(), as()
	for _, e := range []*engine{a, b} {
		if err := e.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
		}
	}
	masters := c.Masters()
	for _, m := range masters {
		key, _ := keyOn(t, c, m, 0)
		handOver(t, a, b, key)
	}
	key, slot := keyOn(t, c, masters[0], 0)
	lease := a.take(t, key, lasting)
	c.Move(slot, masters[1], func() {
		if err := lease.Check(t.Context()); err != nil {
			t.Errorf("a lease whose key is moving: %v", err)
		}
		giveBack(t, lease)
		handOver(t, a, b, key)
	})
	handOver(t, a, b, key)
}

func TestClusterClientOfOneServerIsToldApart(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 2, 0)
	key, slot := keyOn(t, c, c.Masters()[1], 0)
	if c.Master(slot).Addr() == c.Addrs()[0] {
		t.Fatal("the key is on the first server")
	}
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: c.Addrs()[0]}))
	_, err := e.Acquire(t.Context(), core.Policy{Key: key})
	var p *driver.PermanentError
	if !errors.Is(err, core.ErrUnavailable) || !errors.As(err, &p) || !strings.Contains(p.Error(), "redis.NewClusterClient") {
		t.Errorf("a single server's client in a Cluster: %v, cause %v; want a permanent error that says what would be right", err, p)
	}
}

func TestClusterForgottenScriptsAreSentAgainToEachServer(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	a := member(t, c)
	var keys []string
	for _, m := range c.Masters() {
		for n := range 4 {
			key, _ := keyOn(t, c, m, n)
			keys = append(keys, key)
		}
	}
	for range 3 {
		c.Do("SCRIPT", "FLUSH")
		leases := make(chan *core.Lease)
		for _, key := range keys {
			go func() { leases <- a.take(t, key, lasting) }()
		}
		for range keys {
			if l := <-leases; l != nil {
				giveBack(t, l)
			}
		}
	}
}
