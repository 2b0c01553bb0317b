package etcdlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestEveryLostReplyLeavesOneOwner(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	direct := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	for name, match := range map[string]func(etcdtest.Request) bool{
		"of the lease":        is(methodGrant),
		"of the place":        takes,
		"of the renewal":      is(methodKeepAlive),
		"of the release":      parts,
		"of the second grant": second(is(methodTxn)),
		"of the turn":         isTurn,
	} {
		t.Run(name, func(t *testing.T) {
			proxy := etcdtest.NewProxy(t, server.Addr())
			p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
			key := strings.ReplaceAll(name, " ", "-")
			before := direct.take(key, long)
			dropped := proxy.DropReply(match)
			w := p.queue(within(t), key, long)
			direct.drop(before)
			g := w.granted(t)
			if out := p.renew(g, long); out.Err != nil {
				t.Fatalf("renewal: %v", out.Err)
			}
			if _, err := direct.Acquire(within(t), request(key, long)); !isHeld(err) {
				t.Errorf("a request for a key that is held returned %v, not a *HeldError", err)
			}
			p.drop(g)
			if !dropped() {
				t.Error("no reply was lost, so nothing was tested")
			}
			direct.drop(direct.take(key, long))
		})
	}
}

func TestPlaceGivenUpAfterALostReplyIsCleanedUp(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	direct := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	for i := range 6 {
		seen := loseReply(proxy, takes)
		r := request("k", long)
		r.Wait = i%2 == 0
		got := givenUp(t, seen, func(ctx context.Context) result {
			g, err := p.Acquire(ctx, r)
			return result{g, err}
		})
		if got.err == nil { // it had its answer at once
			p.drop(got.Grant)
		}
		r = request("k", long)
		r.Wait = true
		g, err := direct.Acquire(within(t), r)
		if err != nil {
			t.Fatalf("a place that was given up keeps others out: %v", err)
		}
		direct.drop(g)
	}
}

// loseReply loses the reply to the next request that matches; seen tells when it has come.
func loseReply(proxy *etcdtest.Proxy, match func(etcdtest.Request) bool) (seen chan struct{}) {
	seen = make(chan struct{}, 1)
	proxy.DropReply(func(r etcdtest.Request) bool {
		if match(r) {
			tell(seen)
		}
		return match(r)
	})
	return seen
}

// givenUp returns how a call ends that is cancelled when its request has been seen.
func givenUp[T any](t testing.TB, seen <-chan struct{}, call func(context.Context) T) T {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan T, 1)
	go func() { done <- call(ctx) }()
	receive(t, seen, "the request of a call that is to be given up")
	cancel()
	return receive(t, done, "the end of a call that was given up")
}

// second matches from the second request on that the other matches.
func second(match func(etcdtest.Request) bool) func(etcdtest.Request) bool {
	n := 0
	return func(r etcdtest.Request) bool {
		if match(r) {
			n++
		}
		return n > 1 && match(r)
	}
}

// It is why a lease that was revoked bars every late copy of the requests of its owner.
func TestServerRefusesAPlaceOnALeaseThatIsNoMore(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	ctx := within(t)
	l, err := c.Grant(ctx, 10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Revoke(ctx, l.ID); err != nil {
		t.Fatal(err)
	}
	put := clientv3.OpPut("late", "", clientv3.WithLease(l.ID))
	for name, txn := range map[string]clientv3.Txn{
		"in a transaction":   c.Txn(ctx).Then(put),
		"in a transaction's": c.Txn(ctx).Then(clientv3.OpTxn(nil, []clientv3.Op{put}, nil)),
		"in a branch of one": c.Txn(ctx).Then(clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Version("late"), "=", 0)}, []clientv3.Op{put}, nil)),
	} {
		if _, err := txn.Commit(); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
			t.Errorf("a put %s on a lease that was revoked returned %v", name, err)
		}
	}
	if r, err := c.Get(ctx, "late"); err != nil || len(r.Kvs) != 0 {
		t.Errorf("it left %v, %v", r, err)
	}
}

func TestReleaseByAnotherSessionMayBeRepeated(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	a := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	b := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	g := a.take("k", long)
	seen := loseReply(proxy, parts)
	err := givenUp(t, seen, func(ctx context.Context) error { return b.Release(ctx, []driver.Ending{ending(g)})[0] })
	if errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("a release whose reply was lost returned %v", err)
	}
	if err := b.end(g); err != nil {
		t.Errorf("the release repeated returned %v", err)
	}
	a.drop(a.take("k", long))
}
