package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

// brains are two masters, each of which a sentinel takes for the only one, as after a
// failover that one of the sentinels has not heard of.
type brains struct {
	old, right    *testservers.Server
	behind, knows string // the sentinels' addresses
	options       *redis.FailoverOptions

	mu     sync.Mutex
	healed bool        // clients reach the sentinel that knows
	learns func() bool // the other one knows now, too; nil is no
	conns  []net.Conn  // to the one that is behind
}

func newBrains(t *testing.T) *brains {
	b := &brains{old: testservers.Redis(t), right: testservers.Redis(t)}
	b.behind, b.knows = testservers.Watch(t, b.old, 1).Addr(), testservers.Watch(t, b.right, 2).Addr()
	b.options = &redis.FailoverOptions{
		MasterName: testservers.MasterName, SentinelAddrs: []string{b.behind, b.knows}, Dialer: b.dial,
	}
	return b
}

func (b *brains) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if addr == b.knows && !b.healed {
		return nil, errors.New("the network is cut")
	}
	behind := addr == b.behind
	if behind && b.learns != nil && b.learns() {
		addr, behind = b.knows, false
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil && behind {
		b.conns = append(b.conns, conn)
	}
	return conn, err
}

// heal lets clients reach the sentinel that knows.
func (b *brains) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.healed = true
}

// learn has the sentinel that is behind learn of the other master.
func (b *brains) learn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.learns = func() bool { return true }
	for _, c := range b.conns {
		_ = c.Close()
	}
}

// holds fails the test unless the lock is taken at the master.
func (b *brains) holds(t *testing.T, master *testservers.Server, key string) {
	t.Helper()
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: master.Addr()}))
	if _, err := e.Acquire(t.Context(), core.Policy{Key: key}); !errors.Is(err, core.ErrBusy) {
		t.Errorf("%s at %s: %v, want it taken", key, master.Addr(), err)
	}
}

func TestMasterThatWasSupersededIsLeftAsSoonAsOneSentinelSaysSo(t *testing.T) {
	t.Parallel()
	for name, news := range map[string]func(*brains){
		"another one":               (*brains).heal,
		"the one that had named it": (*brains).learn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBrains(t)
			a := newEngine(t, redislock.NewFailoverClient(b.options), core.WithStoreTimeout(outage))
			lease := a.take(t, "k", 2*time.Second)
			b.holds(t, b.old, "k")

			told := whenTold(lease)
			news(b)
			select {
			case <-told:
			case <-bounded(t).Done():
				t.Fatal("the lease was renewed at the old master")
			}
			if !errors.Is(lease.Err(), core.ErrLost) {
				t.Errorf("the old holder was told %v", lease.Err())
			}
			_ = lease.Release(t.Context()) // it was lost
			again := a.take(t, "k", lasting)
			b.holds(t, b.right, "k")
			giveBack(t, again)
		})
	}
}

func TestFailoverClientBeginsAtTheRightMaster(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T, b *brains, key string) {
		e := newEngine(t, redislock.NewFailoverClient(b.options), core.WithStoreTimeout(outage))
		lease := e.take(t, key, lasting)
		b.holds(t, b.right, key)
		giveBack(t, lease)
	}
	t.Run("two masters are named", func(t *testing.T) {
		b := newBrains(t)
		b.heal()
		for i := range 4 { // the sentinels are asked in any order
			begin(t, b, fmt.Sprint("k", i))
		}
	})
	t.Run("the one that was named first is named by nobody when it is dialled", func(t *testing.T) {
		b := newBrains(t)
		b.heal()
		n := 0
		b.learns = func() bool { n++; return n > 1 } // go-redis is the first to ask
		begin(t, b, "k")
	})
}
