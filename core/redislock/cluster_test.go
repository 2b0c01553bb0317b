package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// member is an engine with a client of the whole Cluster.
func member(t testing.TB, c *testservers.Cluster, options ...core.Option) *engine {
	t.Helper()
	return newEngine(t, redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), options...)
}

// keyOn returns an engine's key in a slot of that master, which differs for each
// n.
func keyOn(t testing.TB, c *testservers.Cluster, master *testservers.Server, n int) (key string, slot int) {
	t.Helper()
	for i := range 10_000 {
		key = fmt.Sprint("k", i)
		if slot = c.Slot(protocol.Key("test/" + key)); c.Master(slot) == master {
			if n--; n < 0 {
				return key, slot
			}
		}
	}
	t.Fatal("no key on that master")
	return "", 0
}

func TestClusterHandsKeysOfEveryMasterOverByPushOnOneChannel(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	a, b := member(t, c), member(t, c)
	for _, master := range c.Masters() {
		key, _ := keyOn(t, c, master, 0)
		handOver(t, a, b, key)
	}
	// While a subscription is replaced there are more, or fewer.
	eventually(t, "one channel at one node for each of two processes", func() bool {
		channels := map[string]bool{}
		subscriptions := 0
		for _, addr := range c.Addrs() {
			client := redis.NewClient(&redis.Options{Addr: addr})
			names, err := client.PubSubChannels(t.Context(), redislock.ChannelPrefix+"[^/]*").Result()
			_ = client.Close()
			if err != nil {
				t.Fatal(err)
			}
			subscriptions += len(names)
			for _, name := range names {
				channels[name] = true
			}
		}
		return len(channels) == 2 && subscriptions == 2
	})
}

// TestClusterKeysMayHaveAnyBytes uses keys that would break a hash tag, or the
// client's idea of the slot.
func TestClusterKeysMayHaveAnyBytes(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	open := func() driver.Session {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
		s, err := redislock.New(client).Open(driver.Config{Sink: newSink(), StoreTimeout: attempt})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := errors.Join(s.Close(context.Background()), client.Close()); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	a, b := open(), open()
	keys := []string{
		"}", "{", "{}", "}{", "{a}b", "a{b}c", `\`, `\(`, `\)`, `(`, `{\}`, "\x00", "\xff\xfe", "\r\n", " ", "é☃", "a/b", "*?[]",
		strings.Repeat("x", 1000),
	}
	everyByte := make([]byte, 256)
	for i := range everyByte {
		everyByte[i] = byte(i)
	}
	keys = append(keys, string(everyByte))

	stored, streams := map[string]string{}, map[string]bool{}
	for _, key := range keys {
		name := protocol.Key("test/" + key)
		if other, ok := stored[name]; ok {
			t.Errorf("%q and %q are one lock", key, other)
		}
		stored[name] = key
		if !strings.HasPrefix(name, redislock.KeyPrefix+"{") || strings.Index(name, "}:test/") != len(redislock.KeyPrefix)+3 {
			t.Errorf("%q is stored as %q; want version, a shard in braces, namespace and key", key, name)
		}
		streams[protocol.Stream(name)] = true
		g, err := a.Acquire(t.Context(), driver.Request{ID: newID("test/" + key), TTL: lasting})
		if err != nil {
			t.Errorf("%q: %v", key, err)
			continue
		}
		var held *driver.HeldError
		if _, err := b.Acquire(t.Context(), driver.Request{ID: newID("test/" + key), TTL: lasting}); !errors.As(err, &held) {
			t.Errorf("%q is held, and another process gets %v", key, err)
		}
		t.Cleanup(func() {
			if err := a.Release(context.Background(), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})[0]; err != nil {
				t.Errorf("release %q: %v", key, err)
			}
		})
	}
	for _, addr := range c.Addrs() {
		client := redis.NewClient(&redis.Options{Addr: addr})
		names, err := client.Keys(t.Context(), "*").Result()
		_ = client.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if _, ok := stored[name]; !ok && !streams[name] {
				t.Errorf("the store has %q, which is no lock of these", name)
			}
			delete(stored, name)
		}
	}
	if len(stored) > 0 {
		t.Errorf("the store has no %q", stored)
	}
}

func TestClusterFailoverThatLosesNothingKeepsLeasesAndQueues(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 1)
	a, b := member(t, c, core.WithStoreTimeout(outage)), member(t, c, core.WithStoreTimeout(outage))
	for i, one := range []struct {
		name     string
		failOver func(slot int)
	}{
		{"asked for", func(slot int) { c.FailOver(slot) }},
		{"master killed", func(slot int) {
			old := c.Master(slot)
			client := redis.NewClient(&redis.Options{Addr: old.Addr(), ReadTimeout: 2 * hang})
			if n, err := client.Wait(t.Context(), 1, hang).Result(); err != nil || n < 1 {
				t.Fatalf("replication: %d, %v", n, err)
			}
			_ = client.Close()
			old.Kill()
			c.Promoted(slot, old)
		}},
	} {
		t.Run(one.name, func(t *testing.T) {
			key, slot := keyOn(t, c, c.Masters()[i], 0)
			keepsAllThrough(t, a, b, key, func() { one.failOver(slot) })
		})
	}
}

// TestClusterMasterThatIsDeadEndsNoLeaseOfTheOthers has one master without a
// replica frozen, and then dead, while keys of all masters are in use.
func TestClusterMasterThatIsDeadEndsNoLeaseOfTheOthers(t *testing.T) {
	t.Parallel()
	const (
		short = 3 * time.Second
		ttl   = 15 * time.Second // renewed every 5 s, which may fail for as long twice
	)
	c := testservers.RedisCluster(t, 3, 0)
	a, b := member(t, c, core.WithStoreTimeout(outage)), member(t, c, core.WithStoreTimeout(outage))
	masters := c.Masters()
	take := func(m *testservers.Server, ttl time.Duration) (leases []*core.Lease) {
		for n := range 3 {
			key, _ := keyOn(t, c, m, n)
			leases = append(leases, a.take(t, key, ttl))
		}
		return leases
	}
	alive, dead := append(take(masters[0], ttl), take(masters[1], ttl)...), take(masters[2], short)
	spare, _ := keyOn(t, c, masters[0], 5)
	handOver(t, a, b, spare)
	doomed, _ := keyOn(t, c, masters[2], 5)
	masters[2].Pause()
	machine := hiccups.Start(t)
	var until []time.Time // the others' leases last, as far as is known
	for _, l := range alive {
		until = append(until, l.Deadline())
	}

	var told []<-chan time.Time // when each holder of the frozen master's is
	for _, l := range dead {
		told = append(told, whenTold(l))
	}

	// Traffic for the frozen master, more than there are connections.
	var refused int
	failures := make(chan error)
	for range 8 {
		go func() {
			_, err := a.Acquire(t.Context(), core.Policy{Key: doomed, TTL: lasting})
			failures <- err
		}()
	}
	for range 8 {
		if err := <-failures; errors.Is(err, core.ErrUnavailable) {
			refused++
		}
	}
	if refused != 8 {
		t.Errorf("%d of 8 calls for the frozen master were told that it is unavailable", refused)
	}
	for i, l := range dead {
		lostInTime(t, machine, l, <-told[i], time.Second)
		_ = l.Release(t.Context()) // it was lost
	}
	handOver(t, a, b, spare)
	for i, l := range alive {
		eventually(t, "the renewal of "+l.Key(), func() bool { return l.Deadline().After(until[i]) || l.Err() != nil })
	}
	masters[2].Kill()
	handOver(t, a, b, spare)
	for _, l := range alive {
		if err := l.Err(); err != nil {
			t.Errorf("%s of a master that is well: %v", l.Key(), err)
		}
		if err := answered(t, l); err != nil {
			t.Errorf("%s of a master that is well: %v", l.Key(), err)
		}
		giveBack(t, l)
	}
	masters[2].Restart() // empty, with its slots; otherwise the engines could not clean up
	giveBack(t, a.take(t, doomed, lasting))
}

// subscribesAgain gives both two refreshes at most to subscribe at another node.
func subscribesAgain(t *testing.T, a, b *engine, key string) {
	t.Helper()
	for range 3 {
		lease := a.take(t, key, lasting)
		got := b.queue(t, key, lasting)
		giveBack(t, lease)
		giveBack(t, <-got)
	}
	handOver(t, a, b, key)
}

// TestClusterSubscriptionLeavesADeadMaster kills, one after the other, each master
// that can have the subscriptions beside the one with the key. None has a replica.
func TestClusterSubscriptionLeavesADeadMaster(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	a, b := member(t, c, core.WithStoreTimeout(outage)), member(t, c, core.WithStoreTimeout(outage))
	masters := c.Masters()
	key, _ := keyOn(t, c, masters[0], 0)
	for _, dead := range masters[1:] {
		handOver(t, a, b, key)
		dead.Kill()
		subscribesAgain(t, a, b, key)
		dead.Restart()
		c.Settled()
	}
}

// TestClusterNodeOfTheSubscriptionMayDie kills the node that carries a waiter's
// subscription, which is another one than its key's.
func TestClusterNodeOfTheSubscriptionMayDie(t *testing.T) {
	if testing.Short() {
		t.Skip("waits until a Cluster has replaced a node")
	}
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 1)
	a, b := member(t, c, core.WithStoreTimeout(outage)), member(t, c, core.WithStoreTimeout(outage))
	key, _ := keyOn(t, c, c.Masters()[0], 0)
	handOver(t, a, b, key)
	for slot, m := range map[int]*testservers.Server{8000: c.Masters()[1], 16000: c.Masters()[2]} {
		m.Kill()
		c.Promoted(slot, m)
	}
	subscribesAgain(t, a, b, key)
}
