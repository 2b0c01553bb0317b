package redislock_test

import (
	"bytes"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/testservers"
)

// tenKeys is a policy of ten keys.
func tenKeys() core.Policy {
	p := core.Policy{TTL: lasting, Wait: core.Forever}
	for i := range 10 {
		p.Keys = append(p.Keys, fmt.Sprint("k", i))
	}
	return p
}

// scriptsIn counts the pieces in which keys are taken and scripts are sent to a server: one round trip
// each.
func scriptsIn(p *redistest.Proxy) *atomic.Int64 {
	var n atomic.Int64
	p.DropReply(func(request []byte) bool {
		if takes(request) || deletes(request) || bytes.Contains(request, []byte("evalsha")) {
			n.Add(1)
		}
		return false
	})
	return &n
}

// tripsOf returns the round trips, counted by each of trips, in which an engine takes ten free
// keys and those in which it releases them: the fewest of twenty rounds, and of up to a thousand until
// each is one. A request is repeated if the machine keeps its answer for too long, and a server that
// answers late may get one call ahead of the others.
func tripsOf(t *testing.T, e *engine, trips []*atomic.Int64) (take, release []int64) {
	t.Helper()
	fewest := func(of []int64) []int64 {
		for i, n := range trips {
			now := n.Swap(0)
			if len(of) <= i {
				of = append(of, now)
			}
			of[i] = min(of[i], now)
		}
		return of
	}
	several := func(n int64) bool { return n != 1 }
	for round := 0; round < 20 || round < 1000 && slices.ContainsFunc(slices.Concat(take, release), several); round++ {
		l, err := e.Acquire(t.Context(), tenKeys())
		if err != nil {
			t.Fatal(err)
		}
		take = fewest(take)
		giveBack(t, l)
		release = fewest(release)
		if round == 0 { // from here on the servers know the scripts
			take, release = nil, nil
		}
	}
	return take, release
}

func TestTenFreeKeysTakeOneRoundTripAndAnotherToRelease(t *testing.T) {
	server := testservers.Redis(t)
	proxy := redistest.NewProxy(t, server.Addr())
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: proxy.Addr()}))
	take, release := tripsOf(t, e, []*atomic.Int64{scriptsIn(proxy)})
	if take[0] != 1 || release[0] != 1 {
		t.Errorf("ten free keys cost %d round trips to take and %d to release, want one each", take[0], release[0])
	}
}

func TestTenFreeKeysTakeOneRoundTripToEachServerOfACluster(t *testing.T) {
	t.Parallel()
	c := testservers.RedisCluster(t, 3, 0)
	proxies := map[string]*redistest.Proxy{}
	var trips []*atomic.Int64
	for _, m := range c.Masters() {
		proxies[m.Addr()] = redistest.NewProxy(t, m.Addr())
		trips = append(trips, scriptsIn(proxies[m.Addr()]))
	}
	for _, prompt := range []bool{false, true} {
		e := newEngine(t, redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: c.Addrs(), ContextTimeoutEnabled: prompt,
			NewClient: func(o *redis.Options) *redis.Client {
				o.Addr = proxies[o.Addr].Addr()
				return redis.NewClient(o)
			},
		}))
		take, release := tripsOf(t, e, trips)
		for i := range trips {
			if take[i] != 1 || release[i] != 1 {
				t.Errorf("ten free keys cost %d round trips to server %d to take and %d to release, want one each", take[i], i, release[i])
			}
		}
	}
}

// TestKeysBeyondTheFirstBusyOneAreFreeWhileThatIsWaitedFor is about two processes.
func TestKeysBeyondTheFirstBusyOneAreFreeWhileThatIsWaitedFor(t *testing.T) {
	server := testservers.Redis(t)
	connect := func() *engine { return newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()})) }
	cart, other := connect(), connect()
	held := other.take(t, "k5", lasting)
	got := make(chan *core.Lease, 1)
	go func() {
		l, err := cart.Acquire(t.Context(), tenKeys())
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	<-cart.queued // for k5
	for i := range 10 {
		p := core.Policy{Key: fmt.Sprint("k", i), TTL: lasting}
		l, err := other.Acquire(t.Context(), p)
		if i <= 5 {
			if err == nil {
				t.Errorf("%s is free although the cart holds it, or waits for it", p.Key)
			}
			continue
		}
		for err != nil { // the release is on its way
			l, err = other.Acquire(t.Context(), p)
		}
		giveBack(t, l)
	}
	giveBack(t, held)
	if l := <-got; l != nil {
		giveBack(t, l)
	}
}
