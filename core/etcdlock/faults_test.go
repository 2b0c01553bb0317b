package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/testservers"
)

// leaseAt returns the lease of etcd on which the only place of a key is.
func leaseAt(t testing.TB, c *clientv3.Client, key string) clientv3.LeaseID {
	t.Helper()
	r, err := c.Get(within(t), etcdlock.KeyPrefix+key+"/q/", clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		t.Fatalf("read the only place of a key: %v, %v", r, err)
	}
	return clientv3.LeaseID(r.Kvs[0].Lease)
}

func TestHolderIsToldAtOnceThatItsLeaseIsGone(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	for how, end := range map[string]func() error{
		"its lease is revoked": func() error { _, err := c.Revoke(within(t), leaseAt(t, c, "k")); return err },
		"its place is deleted": func() error { _, err := c.Delete(within(t), etcdlock.KeyPrefix, clientv3.WithPrefix()); return err },
	} {
		t.Run(how, func(t *testing.T) {
			p := open(t, etcdlock.New(c))
			g := p.take("k", long)
			if err := end(); err != nil {
				t.Fatal(err)
			}
			receive(t, p.event(p.lost, g.ID), "Sink.Lost")
			if err := p.renew(g, long).Err; !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("the renewal returned %v, not ErrNotHeld", err)
			}
			if err := p.end(g); !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("the release returned %v, not ErrNotHeld", err)
			}
		})
	}
}

// A waiter that only checks the places before its own would take the key here.
func TestWaiterWhoseOwnLeaseWasRevokedIsNotGranted(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	a, b := open(t, etcdlock.New(c)), open(t, etcdlock.New(c))
	g := a.take("k", long)
	holder := leaseAt(t, c, "k")
	w := b.queue(within(t), "k", long)
	all, err := c.Leases(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range all.Leases {
		if l.ID != holder {
			if _, err := c.Revoke(within(t), l.ID); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.drop(g)
	if r := receive(t, w.done, "the end of a wait whose lease was revoked"); !errors.Is(r.err, driver.ErrPlaceLost) {
		t.Errorf("a wait whose lease was revoked returned %v, not ErrPlaceLost", r.err)
	}
}

func TestSilentServerEndsLeasesByTheirDeadlines(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	p := open(t, etcdlock.New(c))
	const ttl = 3 * time.Second
	machine := hiccups.Start(t)
	g := p.take("k", ttl)
	server.Pause()
	defer server.Resume()
	asked := time.Now()
	for once := true; once || driver.Remaining(g.Deadline, time.Now()) > 0; once = false {
		ctx, cancel := context.WithDeadline(context.Background(), g.Deadline)
		out := p.Renew(ctx, []driver.Renewal{{ID: g.ID, Token: g.Token, TTL: ttl}})[0]
		over := !time.Now().Before(g.Deadline)
		cancel()
		if out.Err == nil || errors.Is(out.Err, driver.ErrNotHeld) && !over {
			t.Fatalf("renewal by a silent server returned %v", out.Err)
		}
	}
	// On a machine that has slept through the deadline the only renewal begins after it.
	late, most := time.Since(driver.Later(g.Deadline, asked)), 50*time.Millisecond+time.Second
	if limit := machine.Allow(most); late > limit {
		t.Errorf("the last renewal returned %v after the deadline, want at most %v, or %v on this machine", late, most, limit)
	}
	server.Resume()
	// The server may have it still, by its own time. Its holder does not.
	if err := p.end(g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release after the deadline returned %v, not ErrNotHeld", err)
	}
}

func TestWaiterOutlivesCompaction(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	c := etcdtest.Client(t, server.Addr())
	a := open(t, etcdlock.New(c))
	b := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	g := a.take("k", long)
	w := b.queue(within(t), "k", long)
	for i := range 3 {
		// While the watch is cut off, what it has still to hear is compacted away.
		resume := proxy.Stall()
		var rev int64
		for range 50 {
			r, err := c.Put(within(t), "other", "")
			if err != nil {
				t.Fatal(err)
			}
			rev = r.Header.Revision
		}
		if i == 2 {
			a.drop(g)
			rev++
		}
		if _, err := c.Compact(within(t), rev, clientv3.WithCompactPhysical()); err != nil {
			t.Fatal(err)
		}
		proxy.Cut()
		resume()
	}
	b.drop(w.granted(t))
}

func TestHolderOutlivesCompaction(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	c := etcdtest.Client(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	g := p.take("k", long)
	other := open(t, etcdlock.New(c))
	w := other.queue(within(t), "k", long)
	if _, err := c.Put(within(t), "other", ""); err != nil {
		t.Fatal(err)
	}
	resume := proxy.Stall()
	if _, err := c.Delete(within(t), etcdlock.KeyPrefix+"k/q/"+placeOf(g)); err != nil {
		t.Fatal(err)
	}
	next := w.granted(t)
	if _, err := c.Compact(within(t), next.Token, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	resume()
	receive(t, p.event(p.lost, g.ID), "Sink.Lost after what told of it was compacted away")
	other.drop(next)
}

func TestConnectionsCutAtRandomLoseNoTurn(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	c := etcdlock.New(etcdtest.Client(t, proxy.Addr()))
	a, b := open(t, c), open(t, c)
	g := a.take("k", long)
	var last int64
	for i := range 10 {
		w := b.queue(within(t), "k", long)
		if i%2 == 0 {
			proxy.Cut()
		}
		released := make(chan error, 1)
		go func() { released <- a.Release(within(t), []driver.Ending{ending(g)})[0] }()
		if i%2 == 1 {
			proxy.Cut()
		}
		if err := receive(t, released, "a release"); err != nil {
			t.Fatalf("release while connections are cut: %v", err)
		}
		g = w.granted(t)
		if g.Token <= last {
			t.Fatalf("token %d after %d", g.Token, last)
		}
		last = g.Token
		a, b = b, a
	}
	a.drop(g)
}

func TestNothingStaysInEtcd(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	p, q := open(t, etcdlock.New(c)), open(t, etcdlock.New(c))
	for range 5 {
		g := p.take("k", long)
		if _, err := q.Acquire(within(t), request("k", long)); !isHeld(err) {
			t.Fatalf("a request for a key that is held returned %v", err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		gone, w := q.queue(ctx, "k", long), q.queue(within(t), "k", long)
		cancel()
		receive(t, gone.done, "the end of a wait that was given up")
		if out := p.renew(g, 2*long); out.Err != nil {
			t.Fatal(out.Err)
		}
		p.drop(g)
		q.drop(w.granted(t))
	}
	for _, p := range []*process{p, q} {
		if err := p.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	// What shows that places were given up ends by itself, ten seconds later.
	for ctx := within(t); ; yield() {
		keys, err := c.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		all, lerr := c.Leases(ctx)
		if err != nil || lerr != nil {
			t.Fatalf("after the last release these keys and leases stay: %v, %v; %v, %v", keys, all, err, lerr)
		}
		if len(keys.Kvs) == 0 && len(all.Leases) == 0 {
			return
		}
		for _, kv := range keys.Kvs {
			if !strings.HasPrefix(string(kv.Key), etcdlock.KeyPrefix+"%/") {
				t.Fatalf("after the last release there is a key %s", kv.Key)
			}
		}
		if len(all.Leases) > 2 {
			t.Fatalf("after the last release there are %d leases", len(all.Leases))
		}
	}
}
