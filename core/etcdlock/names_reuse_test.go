package etcdlock_test

import (
	"context"
	"errors"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

// etcd searches all names that a key's places have had since the last compaction.
func TestKeyHeldOftenHasFewNames(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	p := open(t, etcdlock.New(c))
	first := p.take("k", long)
	p.drop(first)
	for range 20 {
		r := request("k", long)
		r.Wait = true
		g, err := p.Acquire(within(t), r)
		if err != nil {
			t.Fatal(err)
		}
		p.drop(g)
		p.drop(p.take("k", long))
	}
	names := map[string]bool{}
	events := c.Watch(within(t), etcdlock.KeyPrefix+"k/", clientv3.WithPrefix(), clientv3.WithRev(1))
	for _, e := range receive(t, events, "all events of the key").Events {
		names[string(e.Kv.Key)] = true
	}
	if len(names) != 1 {
		t.Errorf("a key that was held 41 times has had the names %v; want one", names)
	}
}

// The name of a place outlives the lease of the lock that it was for.
func TestReleaseByAnotherSessionEndsNoLaterLeaseOfThatName(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	a := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	b := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	old := a.take("k", long)
	a.drop(old)
	next := a.take("k", long)
	if placeOf(next) != placeOf(old) {
		t.Fatalf("the second lease has the place %q, and the first %q", placeOf(next), placeOf(old))
	}
	if err := b.end(old); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the release of a lease that has ended returned %v", err)
	}
	if out := b.renew(old, long); !errors.Is(out.Err, driver.ErrNotHeld) {
		t.Errorf("the renewal of a lease that has ended returned %v", out.Err)
	}
	r, e := request("k", long), ending(old)
	r.Replace = &e
	if _, err := b.Acquire(within(t), r); !isHeld(err) {
		t.Errorf("a request that replaces a lease that has ended returned %v, not a *HeldError", err)
	}
	if out := a.renew(next, long); out.Err != nil {
		t.Errorf("the renewal of the later lease returned %v", out.Err)
	}
	if err := b.end(next); err != nil {
		t.Errorf("the release of the later lease by another session returned %v", err)
	}
}

// A late copy of the request that deletes a place could delete the next one of that name.
func TestNameIsNotUsedAgainAfterAWithdrawalThatMayComeTwice(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	c := etcdtest.Client(t, server.Addr())
	holder := open(t, etcdlock.New(c))
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	g := holder.take("k", long)
	ctx, withdraw := context.WithCancel(within(t))
	w := p.queue(ctx, "k", long)
	r, err := c.Get(within(t), etcdlock.KeyPrefix+"k/q/", clientv3.WithLastCreate()...)
	if err != nil {
		t.Fatal(err)
	}
	dropped := proxy.DropReply(parts)
	withdraw()
	if got := receive(t, w.done, "the end of the wait"); got.err == nil {
		t.Fatal("a request that was withdrawn was granted")
	}
	for { // until the lease that the name is of is revoked
		left, err := c.TimeToLive(within(t), clientv3.LeaseID(r.Kvs[0].Lease))
		if err != nil {
			t.Fatal(err)
		}
		if left.TTL < 0 {
			break
		}
		yield()
	}
	if !dropped() {
		t.Error("no reply was lost, so nothing was tested")
	}
	holder.drop(g)
}
