package redislock_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// follower is an engine whose client asks the sentinels who is the master.
func follower(t testing.TB, s *testservers.Sentinel) *engine {
	t.Helper()
	return newEngine(t, redislock.NewFailoverClient(&redis.FailoverOptions{
		MasterName: testservers.MasterName, SentinelAddrs: s.Addrs(),
	}), core.WithStoreTimeout(outage))
}

// TestSentinelConformance runs the suite on a master that Sentinels watch. What restarts
// or wipes servers is told by the tests of failovers.
func TestSentinelConformance(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite on one server is enough with -short")
	}
	t.Parallel()
	s := testservers.RedisSentinel(t, 1)
	master := s.Master().Addr()
	open := func(t *testing.T, to string) *redis.Client {
		c := redislock.NewFailoverClient(&redis.FailoverOptions{
			MasterName: testservers.MasterName, SentinelAddrs: s.Addrs(),
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == master {
					addr = to
				}
				return new(net.Dialer).DialContext(ctx, network, addr)
			},
		})
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close the client: %v", err)
			}
		})
		return c
	}
	drivertest.Run(t, func(t *testing.T) *drivertest.Harness {
		proxy := redistest.NewProxy(t, master)
		by := open(t, proxy.Addr())
		if err := by.Ping(t.Context()).Err(); err != nil { // it has found the master
			t.Fatal(err)
		}
		return proxied(t, proxy, by, open(t, master))
	})
}

func TestSentinelFailoverThatLosesNothingKeepsLeasesAndQueues(t *testing.T) {
	t.Parallel()
	for name, failOver := range map[string]func(*testservers.Sentinel){
		"master killed": func(s *testservers.Sentinel) {
			old := s.Master()
			old.Kill()
			s.Promoted(old)
		},
		"asked for": func(s *testservers.Sentinel) { s.FailOver() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := testservers.RedisSentinel(t, 1)
			a, b := follower(t, s), follower(t, s)
			keepsAllThrough(t, a, b, "k", func() {
				s.Replicated(s.Master())
				failOver(s)
			})
		})
	}
}

func TestSentinelPromotionBesideAFrozenMasterEndsItsLeases(t *testing.T) {
	t.Parallel()
	s := testservers.RedisSentinel(t, 1)
	a, b := follower(t, s), follower(t, s)
	handOver(t, a, b, "before")
	master := s.Master()
	s.CutReplication(master)
	lease := a.take(t, "k", 8*time.Second)
	told := whenTold(lease)
	machine := hiccups.Start(t)
	master.Pause()
	s.Promoted(master)
	second := b.take(t, "k", lasting)
	lostInTime(t, machine, lease, <-told, 50*time.Millisecond)
	if second.Token() <= lease.Token() {
		t.Errorf("token %d after %d", second.Token(), lease.Token())
	}
	_ = lease.Release(t.Context()) // it was lost
	giveBack(t, second)

	// It wakes up as a master with data of its own and is made a replica.
	master.Resume()
	s.Readmit(master)
	s.Demoted(master)
	handOver(t, a, b, "after")
}

func TestSentinelMasterWithoutReplicasEndsLeasesIfItMustHaveSome(t *testing.T) {
	t.Parallel()
	s := testservers.RedisSentinel(t, 1, "--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")
	a := follower(t, s)
	lease := a.take(t, "k", 2*time.Second)
	machine := hiccups.Start(t)
	told := whenTold(lease)
	s.CutReplication(s.Master())
	lostInTime(t, machine, lease, <-told, 50*time.Millisecond)
	_ = lease.Release(t.Context()) // it was lost
	_, err := a.Acquire(t.Context(), core.Policy{Key: "other"})
	if !errors.Is(err, core.ErrUnavailable) || isPermanent(err) {
		t.Errorf("a key of a master that may not write: %v; want a passing ErrUnavailable", err)
	}
	s.Readmit(s.Master())
	giveBack(t, a.take(t, "k", lasting))
}

func TestSentinelReplicaRefusesLocksUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	s := testservers.RedisSentinel(t, 1)
	old := s.Master()
	var replica string
	for _, n := range s.Nodes() {
		if n != old {
			replica = n.Addr()
		}
	}
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: replica}))
	if _, err := e.Acquire(t.Context(), core.Policy{Key: "k"}); !errors.Is(err, core.ErrUnavailable) || isPermanent(err) {
		t.Errorf("a lock at a replica: %v; want a passing ErrUnavailable", err)
	}
	s.FailOver()
	giveBack(t, e.take(t, "k", lasting))
}

func isPermanent(err error) bool {
	var p *driver.PermanentError
	return errors.As(err, &p)
}
