package etcdlock_test

import (
	"context"
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

// Those who waited before the grant are in no event after it.
func TestGrantWhoseReplyWasLostSaysThatOthersWait(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	direct := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	before := direct.take("k", long)
	w := p.queue(within(t), "k", long)
	last := direct.queue(within(t), "k", long)
	dropped := proxy.DropReply(isTurn)
	direct.drop(before)
	g := w.granted(t)
	if !dropped() {
		t.Error("no reply was lost, so nothing was tested")
	}
	if !g.Contended {
		t.Error("Grant.Contended is false, but another process waits")
	}
	p.drop(g)
	direct.drop(last.granted(t))
}

func TestWaiterWhosePlaceIsGoneIsNotGrantedTheKey(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	a, b := open(t, etcdlock.New(etcdtest.Client(t, server.Addr()))), open(t, etcdlock.New(c))
	held := a.take("k", long)
	gone := b.queue(within(t), "k", long)
	places, err := c.Get(within(t), "la1/k/q/", clientv3.WithLastCreate()...)
	if err != nil || len(places.Kvs) != 1 {
		t.Fatalf("the newest place: %v, %v", places, err)
	}
	behind := a.queue(within(t), "k", long)
	if _, err := c.Txn(within(t)).Then(clientv3.OpDelete(string(places.Kvs[0].Key))).Commit(); err != nil {
		t.Fatal(err)
	}
	a.drop(held)
	next := behind.granted(t)
	if r := receive(t, gone.done, "the end of the wait"); !errors.Is(r.err, driver.ErrPlaceLost) {
		t.Errorf("a waiter whose place was deleted: %+v, %v, want %v", r.Grant, r.err, driver.ErrPlaceLost)
	}
	a.drop(next)
}

// inTurn is a client whose watches the test passes on, and one of whose replies it holds back.
type inTurn struct {
	clientv3.Watcher
	clientv3.KV
	watches chan watching
	replies chan reply // to hold back
}

// watching is what etcd has sent, and what the session has.
type watching struct {
	from clientv3.WatchChan
	to   chan clientv3.WatchResponse
}

func (c *inTurn) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w := watching{c.Watcher.Watch(ctx, key, opts...), make(chan clientv3.WatchResponse)}
	context.AfterFunc(ctx, func() { close(w.to) })
	c.watches <- w
	return w.to
}

// passUntil passes on what etcd has sent until there was an event of that kind. It returns when the
// session has seen it.
func (w watching) passUntil(t testing.TB, kind mvccpb.Event_EventType) {
	t.Helper()
	for there := false; !there; {
		r := receive(t, w.from, "an event")
		for _, e := range r.Events {
			there = there || e.Type == kind
		}
		w.to <- r
	}
	w.to <- clientv3.WatchResponse{}
}

// reply is that of a transaction: it has come, and may go on. With err it is lost.
type reply struct {
	came, goOn chan struct{}
	err        error
}

func newReply(err error) reply { return reply{make(chan struct{}), make(chan struct{}), err} }

type txnInTurn struct {
	clientv3.Txn
	replies <-chan reply
}

func (c *inTurn) Txn(ctx context.Context) clientv3.Txn { return txnInTurn{c.KV.Txn(ctx), c.replies} }

func (t txnInTurn) If(cs ...clientv3.Cmp) clientv3.Txn { return txnInTurn{t.Txn.If(cs...), t.replies} }

func (t txnInTurn) Then(ops ...clientv3.Op) clientv3.Txn {
	return txnInTurn{t.Txn.Then(ops...), t.replies}
}

func (t txnInTurn) Else(ops ...clientv3.Op) clientv3.Txn {
	return txnInTurn{t.Txn.Else(ops...), t.replies}
}

func (t txnInTurn) Commit() (*clientv3.TxnResponse, error) {
	r, err := t.Txn.Commit()
	select {
	case held := <-t.replies:
		close(held.came)
		if <-held.goOn; held.err != nil {
			return nil, held.err
		}
	default:
	}
	return r, err
}

// One waiter goes, etcd answers a renewal, and another comes before the answer does.
func TestRenewalSaysWhatAnEventBesideItHasSaid(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	turn := &inTurn{c.Watcher, c.KV, make(chan watching, 1), make(chan reply, 1)}
	c.Watcher, c.KV = turn, turn
	holder, other := open(t, etcdlock.New(c)), open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	g := holder.take("k", long)
	events := receive(t, turn.watches, "the watch of a lease")
	ctx, giveUp := context.WithCancel(within(t))
	defer giveUp()
	first := other.queue(ctx, "k", long)
	events.passUntil(t, mvccpb.Event_PUT)
	receive(t, holder.event(holder.contended, g.ID), "Sink.Contended")
	giveUp()
	receive(t, first.done, "the end of a wait that was given up")
	for st, err := other.Inspect(within(t), "k"); st.Waiting > 0 || err != nil; st, err = other.Inspect(within(t), "k") {
		if err != nil {
			t.Fatal(err)
		}
		yield()
	}
	held := newReply(nil)
	turn.replies <- held
	renewed := make(chan driver.Renewed, 1)
	go func() { renewed <- holder.renew(g, long) }()
	receive(t, held.came, "etcd's answer to a renewal")
	second := other.queue(within(t), "k", long)
	events.passUntil(t, mvccpb.Event_PUT)
	close(held.goOn)
	if out := receive(t, renewed, "a renewal"); out.Err != nil || !out.Contended {
		t.Errorf("another process waits, and the renewal says %+v", out)
	}
	holder.drop(g)
	other.drop(second.granted(t))
}
