package etcdlock_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/driverbench"
)

// methods are those of requests, with what they cost by the documentation.
var methods = []string{methodGrant, methodTxn, methodRevoke, methodKeepAlive}

func counts(p *etcdtest.Proxy) map[string]int {
	n := make(map[string]int)
	for _, m := range methods {
		n[m] = p.Count(m)
	}
	return n
}

func TestFreeKeyCostsThreeRequests(t *testing.T) {
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())), 2*time.Second)
	p.drop(p.take("k", long))
	const n = 20
	before := counts(proxy)
	for range n {
		p.drop(p.take("k", long))
	}
	after := counts(proxy)
	for m, each := range map[string]int{methodGrant: 1, methodTxn: 1, methodRevoke: 1, methodKeepAlive: 0} {
		if got := after[m] - before[m]; got != n*each {
			t.Errorf("%d times a free key took %d of %s", n, got, m)
		}
	}
}

func TestHandOverCostsARevocationAndATransaction(t *testing.T) {
	server := etcdtest.Start(t)
	direct := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())), 2*time.Second)
	for _, waiters := range []int{2, 32} {
		proxy := etcdtest.NewProxy(t, server.Addr())
		ps := []*process{
			open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())), 2*time.Second),
			open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())), 2*time.Second),
		}
		g := direct.take("k", long)
		var queue []*waiter
		for i := range waiters {
			queue = append(queue, ps[i%2].queue(within(t, 30*time.Second), "k", 2*long))
		}
		before, start := counts(proxy), time.Now()
		direct.drop(g)
		for i, w := range queue {
			ps[i%2].drop(w.granted(t, 5*time.Second))
		}
		after := counts(proxy)
		polls := waiters * int(time.Since(start)/(500*time.Millisecond)+1)
		t.Logf("%d hand-overs took %v: %v before, %v after", waiters, time.Since(start), before, after)
		if got := after[methodRevoke] - before[methodRevoke]; got != waiters {
			t.Errorf("%d hand-overs took %d revocations", waiters, got)
		}
		if got := after[methodTxn] - before[methodTxn]; got < waiters || got > waiters+polls {
			t.Errorf("%d hand-overs took %d transactions, with at most %d looks", waiters, got, polls)
		}
	}
}

func TestStormOfRefusedRequestsWritesLittle(t *testing.T) {
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())), 2*time.Second)
	g := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())), 2*time.Second).take("k", long)
	start := time.Now()
	const n = 100
	for range n {
		if _, err := p.Acquire(within(t, 10*time.Second), request(g.Key, long)); !isHeld(err) {
			t.Fatalf("a request for a key that is held returned %v", err)
		}
	}
	most := 2 + int(time.Since(start)/(100*time.Millisecond))
	if got := proxy.Count(methodGrant); got > most {
		t.Errorf("%d refused requests took %d leases, want at most %d", n, got, most)
	}
}

func BenchmarkDriver(b *testing.B) {
	server := etcdtest.Start(b)
	driverbench.Run(b, func(t testing.TB) driver.Driver { return etcdlock.New(etcdtest.Client(t, server.Addr())) })
}
