package redislock_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// pair is a master and its one replica.
type pair struct{ master, replica *testservers.Server }

func startPair(t *testing.T) pair {
	t.Helper()
	master := testservers.Redis(t)
	host, port, err := net.SplitHostPort(master.Addr())
	if err != nil {
		t.Fatal(err)
	}
	p := pair{master, testservers.Redis(t, "--replicaof", host+" "+port)}
	p.caughtUp(t)
	return p
}

// caughtUp waits until the replica has all that the master has.
func (p pair) caughtUp(t *testing.T) {
	t.Helper()
	rdb := newClient(t, redis.Options{Addr: p.master.Addr()})
	eventually(t, "a replica that has all", func() bool {
		return rdb.Set(t.Context(), "written", 1, 0).Err() == nil && rdb.Wait(t.Context(), 1, time.Second).Val() == 1
	})
}

// confirming takes its locks with one replica's word.
func (p pair) confirming(t *testing.T) *process {
	t.Helper()
	o := &redis.Options{Addr: p.master.Addr(), ReadTimeout: 500 * time.Millisecond}       // which is the user's, and not for WAIT
	return joinBy(t, redis.NewClient(o), attempt, redislock.WithReplicas(1, time.Second)) // which a busy machine keeps
}

func unconfirmed(err error) bool {
	return err != nil && !errors.Is(err, driver.ErrNotHeld) && strings.Contains(err.Error(), "replicas")
}

func TestLeaseCountsOnlyIfReplicasHaveIt(t *testing.T) {
	t.Parallel()
	p := startPair(t)
	a, b := p.confirming(t), p.confirming(t)
	if err := a.Ping(bounded(t)); err != nil {
		t.Fatalf("ping: %v", err)
	}
	held := a.take("held", lasting)
	handed := a.take("handed over", lasting)
	_, waiting := b.queue("handed over", lasting)

	p.replica.Pause()
	for _, wait := range []bool{false, true} {
		r := driver.Request{ID: newID(fmt.Sprint("free ", wait)), TTL: lasting, Wait: wait}
		if _, err := a.Acquire(bounded(t), r); !unconfirmed(err) {
			t.Errorf("a free key without the replica: %v", err)
		}
	}
	if r := a.renew(held, lasting); !unconfirmed(r.Err) {
		t.Errorf("a renewal without the replica: %v", r.Err)
	}
	a.release(handed)
	if got := await(t, waiting); !unconfirmed(got.err) {
		t.Errorf("a key that was handed over without the replica: %v", got.err)
	}

	p.replica.Resume()
	p.caughtUp(t)
	if r := a.renew(held, lasting); r.Err != nil {
		t.Errorf("a renewal after that: %v", r.Err)
	}
	for _, key := range []string{"free false", "free true", "handed over"} {
		eventually(t, key+" given back", func() bool {
			st, err := a.Inspect(t.Context(), key)
			return err == nil && !st.Held
		})
		a.release(a.take(key, lasting))
	}
}

func TestPingSaysThatThereAreTooFewReplicas(t *testing.T) {
	t.Parallel()
	if err := (pair{master: testservers.Redis(t)}).confirming(t).Ping(bounded(t)); !unconfirmed(err) {
		t.Errorf("ping of a master without a replica: %v", err)
	}
}

func TestReplicasThatCannotBeWaitedForAreRefused(t *testing.T) {
	rdb := newClient(t, redis.Options{Addr: "127.0.0.1:1"})
	for _, tt := range []struct {
		n      int
		within time.Duration
	}{{0, time.Second}, {-1, time.Second}, {1, 0}, {1, time.Microsecond}, {1, 3 * time.Second}} {
		if s, err := redislock.New(rdb, redislock.WithReplicas(tt.n, tt.within)).Open(driver.Config{Sink: noSink{}, StoreTimeout: 3 * time.Second}); err == nil || s != nil {
			t.Errorf("WithReplicas(%d, %v) was opened", tt.n, tt.within)
		}
	}
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, ReadTimeout: time.Second})
	defer func() { _ = cluster.Close() }()
	if s, err := redislock.New(cluster, redislock.WithReplicas(1, time.Second)).Open(driver.Config{Sink: noSink{}, StoreTimeout: 3 * time.Second}); err == nil || s != nil {
		t.Error("a Cluster's client that waits for no longer than WAIT was taken")
	}
}

// failing is a master with one replica, that can be made to fail.
type failing struct {
	join func(...redislock.Option) *engine
	keys []string // on that master
	cut  func()   // the replica gets no more writes
	fail func()   // the master dies, and the replica is promoted
}

func failingWatched(t *testing.T) failing {
	s := testservers.RedisSentinel(t, 1)
	master := s.Master()
	s.Replicated(master)
	return failing{
		join: func(o ...redislock.Option) *engine {
			client := redislock.NewFailoverClient(&redis.FailoverOptions{MasterName: testservers.MasterName, SentinelAddrs: s.Addrs()})
			return newEngineOn(t, client, redislock.New(client, o...), core.WithStoreTimeout(outage))
		},
		keys: []string{"before", "during", "unconfirmed"},
		cut:  func() { s.CutReplication(master) },
		fail: func() { master.Kill(); s.Promoted(master) },
	}
}

func failingInACluster(t *testing.T) failing {
	c := testservers.RedisCluster(t, 3, 1)
	master := c.Masters()[0]
	var keys []string
	var slot int
	for i := range 3 {
		var key string
		key, slot = keyOn(t, c, master, i)
		keys = append(keys, key)
	}
	return failing{
		join: func(o ...redislock.Option) *engine {
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
			return newEngineOn(t, client, redislock.New(client, o...), core.WithStoreTimeout(outage))
		},
		keys: keys,
		cut:  func() { c.CutReplication(master) },
		fail: func() { master.Kill(); c.Promoted(slot, master) },
	}
}

// A lease that a replica has confirmed outlives a failover to that replica: 2 failovers, or 100 if full counts are asked for. Replication
// is held up at random before them.
func TestFailoverKeepsWhatReplicasHaveConfirmed(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for failovers")
	}
	t.Parallel()
	for name, start := range map[string]func(*testing.T) failing{"Sentinel": failingWatched, "Cluster": failingInACluster} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds := counts.Of(t, "failovers", 2, 100)
			var cuts, refused, lost atomic.Int64
			t.Run("rounds", func(t *testing.T) {
				for i := range rounds {
					t.Run(fmt.Sprint(i+1), func(t *testing.T) {
						if i%2 == 1 { // two at a time
							t.Parallel()
						}
						f := start(t)
						confirming := f.join(redislock.WithReplicas(1, 200*time.Millisecond))
						plain, other := f.join(), f.join()
						kept := []*core.Lease{confirming.take(t, f.keys[0], lasting)}
						cut := rand.IntN(2) == 0
						if cut {
							cuts.Add(1)
							f.cut()
						}
						during, err := confirming.Acquire(bounded(t), core.Policy{Key: f.keys[1], TTL: lasting})
						switch {
						case err == nil:
							kept = append(kept, during)
						case cut && errors.Is(err, core.ErrUnavailable):
							refused.Add(1)
						default:
							t.Errorf("with a replica that is cut off: %t: %v", cut, err)
						}
						unconfirmed := plain.take(t, f.keys[2], lasting)
						f.fail()
						taken := func(key string) bool {
							for {
								lease, err := other.Acquire(bounded(t), core.Policy{Key: key, TTL: lasting})
								switch {
								case err == nil:
									giveBack(t, lease)
									return false
								case errors.Is(err, core.ErrBusy):
									return true
								case !errors.Is(err, core.ErrUnavailable) || t.Context().Err() != nil:
									t.Fatal(err)
								}
							}
						}
						for _, lease := range kept {
							if !taken(lease.Key()) {
								t.Errorf("%s was confirmed, and free after the failover", lease.Key())
							}
							_ = lease.Release(t.Context()) // its client may not know the new master yet
						}
						if !taken(unconfirmed.Key()) {
							lost.Add(1)
						}
						_ = unconfirmed.Release(t.Context()) // which may be lost
					})
				}
			})
			t.Logf("%d failovers, %d after replication was cut: %d acquisitions refused with WithReplicas; %d leases lost without it, none of those that were confirmed",
				rounds, cuts.Load(), refused.Load(), lost.Load())
			if refused.Load() != cuts.Load() {
				t.Errorf("%d acquisitions were refused, want %d", refused.Load(), cuts.Load())
			}
		})
	}
}

// What restarts or wipes the master is told by the test of failovers.
func TestConformanceWithReplicas(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite without replicas is enough with -short")
	}
	t.Parallel()
	p := startPair(t)
	drivertest.Run(t, func(t *testing.T) *drivertest.Harness {
		proxy := redistest.NewProxy(t, p.master.Addr())
		by, direct := newClient(t, redis.Options{Addr: proxy.Addr()}), newClient(t, redis.Options{Addr: p.master.Addr()})
		return proxied(t, proxy, by, direct, redislock.WithReplicas(1, 200*time.Millisecond))
	})
}
