package etcdlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

// takeMany takes so many keys.
func (p *process) takeMany(n int) (all []driver.Ending) {
	p.t.Helper()
	for i := range n {
		all = append(all, ending(p.take(fmt.Sprint("k", i), long)))
	}
	return all
}

func (p *process) dropAll(all []driver.Ending) {
	p.t.Helper()
	for i, err := range p.Release(within(p.t), all) {
		if err != nil {
			p.t.Errorf("the release of lease %d of %d returned %v", i, len(all), err)
		}
	}
}

func TestReleasesThatComeTogetherTravelTogether(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	const n = 40
	held := p.takeMany(n)
	proxy.DelayReplies(20 * time.Millisecond)
	before := callsOf(proxy)
	p.dropAll(held)
	after := callsOf(proxy)
	got := after[methodTxn] + after[methodDelete] - before[methodTxn] - before[methodDelete]
	if got > n/2 {
		t.Errorf("%d releases took %d requests", n, got)
	}
	if again := p.takeMany(n); len(again) == n { // all are free
		p.dropAll(again)
	}
}

func TestReleasesThatAreRefusedTogetherAreMadeOneByOne(t *testing.T) {
	t.Setenv("ETCD_MAX_TXN_OPS", "8")
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	held := p.takeMany(40)
	proxy.DelayReplies(20 * time.Millisecond)
	before := callsOf(proxy)
	p.dropAll(held)
	if callsOf(proxy)[methodTxn] == before[methodTxn] {
		t.Error("no releases travelled together, so nothing was tested")
	}
	p.dropAll(p.takeMany(40))
}

// A late copy of the request could otherwise delete the place of the next lease of that name.
func TestNameIsNotUsedAgainAfterAReleaseThatMayComeTwice(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	first := p.take("k", long)
	resume := proxy.Stall()
	done := make(chan error, 1)
	go func() { done <- p.end(first) }()
	for before := proxy.Count(methodDelete); proxy.Count(methodDelete) == before; {
		runtime.Gosched() // until the request is on its way
	}
	proxy.Cut()
	resume()
	if err := receive(t, done, "the release"); err != nil {
		t.Fatal(err)
	}
	next := p.take("k", long)
	if placeOf(next) == placeOf(first) {
		t.Errorf("the next lease has the place %q, a name that may be deleted", placeOf(next))
	}
	p.drop(next)
}

// Otherwise the clean-up of the first release would end the next lease on the same etcd lease.
func TestNameIsNotUsedAgainAfterAReleaseThatWasGivenUpAndRepeated(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	for i := range 20 {
		key := fmt.Sprint("k", i)
		first := p.take(key, long)
		resume := proxy.Stall()
		ctx, giveUp := context.WithCancel(t.Context())
		done := make(chan error, 1)
		before := proxy.Count(methodDelete)
		go func() { done <- p.Release(ctx, []driver.Ending{ending(first)})[0] }()
		for proxy.Count(methodDelete) == before {
			runtime.Gosched() // until the request is on its way
		}
		giveUp()
		if err := receive(t, done, "the release"); err == nil {
			t.Fatal("a release without an answer has succeeded")
		}
		proxy.Cut()
		resume()
		if err := p.end(first); err != nil {
			t.Fatal("the release, once more:", err)
		}
		next := p.take(key, long)
		if placeOf(next) == placeOf(first) {
			t.Errorf("the next lease has the place %q, whose etcd lease is to be revoked", placeOf(next))
		}
		p.drop(next)
	}
}
