package etcdlock_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/suites"
	"github.com/lockaround/lockaround/core/internal/testkit"
	"github.com/lockaround/lockaround/core/testservers"
)

// methods are those of requests, with what they cost by the documentation.
var methods = []string{methodGrant, methodTxn, methodDelete, methodRevoke, methodKeepAlive}

func callsOf(p *etcdtest.Proxy) map[string]int {
	n := make(map[string]int)
	for _, m := range methods {
		n[m] = p.Count(m)
	}
	return n
}

func TestFreeKeyCostsTwoRequests(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	p.drop(p.take("k", long))
	const n = 20
	before := callsOf(proxy)
	for range n {
		p.drop(p.take("k", long))
	}
	after := callsOf(proxy)
	for m, each := range map[string]int{methodGrant: 0, methodTxn: 1, methodDelete: 1, methodRevoke: 0, methodKeepAlive: 0} {
		if got := after[m] - before[m]; got != n*each {
			t.Errorf("%d times a free key took %d of %s", n, got, m)
		}
	}
}

func TestHandOverCostsTwoRequests(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	direct := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	for _, waiters := range []int{2, 32} {
		proxy := etcdtest.NewProxy(t, server.Addr())
		ps := []*process{
			open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr()))),
			open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr()))),
		}
		g := direct.take("k", long)
		var queue []*waiter
		for i := range waiters {
			queue = append(queue, ps[i%2].queue(within(t), "k", long))
		}
		start, before := time.Now(), callsOf(proxy)
		direct.drop(g)
		for i, w := range queue {
			ps[i%2].drop(w.granted(t))
		}
		after := callsOf(proxy)
		polls := waiters * int(time.Since(start)/(500*time.Millisecond)+2)
		t.Logf("%d hand-overs took %v: %v before, %v after", waiters, time.Since(start), before, after)
		got := after[methodTxn] + after[methodDelete] - before[methodTxn] - before[methodDelete]
		if got < 2*waiters || got > 2*waiters+polls {
			t.Errorf("%d hand-overs took %d requests, with at most %d looks", waiters, got, polls)
		}
	}
}

// A server without room executes what reads and what deletes.
func TestHandOverNeedsNoWriteButTheRelease(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	a, b := open(t, etcdlock.New(etcdtest.Client(t, server.Addr()))), open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	g := a.take("k", long)
	var queue []*waiter
	for i := range 4 {
		queue = append(queue, []*process{b, a}[i%2].queue(within(t), "k", long))
	}
	_, restore := fill(t, server)
	defer restore()
	a.drop(g)
	for i, w := range queue {
		[]*process{b, a}[i%2].drop(w.granted(t))
	}
}

func TestInspectSaysSinceWhenAKeyIsHeldThatWasHandedOver(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	a, b := open(t, etcdlock.New(etcdtest.Client(t, server.Addr()))), open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	before := a.take("k", long)
	w := b.queue(within(t), "k", long)
	released := time.Now()
	a.drop(before)
	g := w.granted(t)
	testkit.Until(t, "the time of the grant", func() bool {
		st, err := a.Inspect(within(t), "k")
		if err != nil || len(st.Holders) != 1 || st.Token != g.Token || st.Waiting != 0 {
			t.Fatalf("Inspect says %+v, %v", st, err)
		}
		return st.Holders[0].Since.After(released.Add(-time.Millisecond))
	})
	if r := b.Renew(within(t), []driver.Renewal{{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: long}})[0]; r.Err != nil {
		t.Errorf("renew: %v", r.Err)
	}
	b.drop(g)
}

func TestStormOfRefusedRequestsWritesLittle(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	g := open(t, etcdlock.New(etcdtest.Client(t, server.Addr()))).take("k", long)
	start := time.Now()
	const n = 100
	for range n {
		if _, err := p.Acquire(within(t), request(g.Key, long)); !isHeld(err) {
			t.Fatalf("a request for a key that is held returned %v", err)
		}
	}
	got := proxy.Count(methodGrant)
	if most := 2 + int(time.Since(start)/(100*time.Millisecond)); got > most {
		t.Errorf("%d refused requests took %d leases, want at most %d", n, got, most)
	}
}

func BenchmarkDriver(b *testing.B) {
	server := testservers.Etcd(b)
	suites.Bench(b, func(t testing.TB) driver.Driver { return etcdlock.New(etcdtest.Client(t, server.Addr())) })
}

// etcd looks after watches that begin in the past every 100 ms only.
func TestWaiterHearsAtOnceOfAReleaseThatCameBeforeItsWatch(t *testing.T) {
	server := testservers.Etcd(t)
	a, b := open(t, etcdlock.New(etcdtest.Client(t, server.Addr()))), open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	writes, stop := etcdtest.Client(t, server.Addr()), make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { // so that each revision is soon a past one
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = writes.Put(t.Context(), "revision", "") // some are enough
			}
		}
	})
	defer writing.Wait()
	defer close(stop)
	var free, handOvers []time.Duration
	for range 20 {
		began := time.Now()
		a.drop(a.take("free", long))
		free = append(free, time.Since(began))
		g := a.take("k", long)
		w := b.queue(within(t), "k", long)
		began = time.Now()
		a.drop(g)
		g = w.granted(t)
		handOvers = append(handOvers, time.Since(began))
		b.drop(g)
	}
	slices.Sort(free)
	slices.Sort(handOvers)
	if got, unit := handOvers[len(handOvers)/2], free[len(free)/2]; got > 10*unit {
		t.Errorf("half of the hand-overs took over %v, where a section of a free key takes %v", got, unit)
	}
}
