package etcdlock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/testservers"
)

// Acquire would otherwise find the key taken by its own request.
func TestRequestThatHadNoAnswerIsGrantedWhatItHasTaken(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		server := testservers.Etcd(t)
		proxy := etcdtest.NewProxy(t, server.Addr())
		p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
		r := p.beginWithoutAnswer(proxy, wait)
		g, err := p.Acquire(within(t), r)
		if err != nil {
			t.Fatalf("wait %v: Acquire after it returns %v", wait, err)
		}
		p.drop(g)
	}
}

func TestRequestThatHadNoAnswerIsCleanedUpByClose(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	other := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	r := p.beginWithoutAnswer(proxy, true)
	if err := p.Close(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Acquire(within(t), r); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("Acquire of a closed session returns %v", err)
	}
	other.drop(other.take(r.Key, long)) // the lease would last for ten minutes
}

// beginWithoutAnswer begins a request for the key k, and returns it when etcd has been asked and has
// not answered.
func (p *process) beginWithoutAnswer(proxy *etcdtest.Proxy, wait bool) driver.Request {
	p.t.Helper()
	r := request("k", long)
	r.Wait = wait
	for asked := false; !asked; { // Begin asks while etcd is quick, which a busy machine may not let it be
		p.drop(p.take("k", long)) // leaves a spare
		proxy.DelayReplies(2 * driver.Promptness)
		before := proxy.Count(methodTxn)
		if g, done, err := p.Session.(driver.Prompt).Begin(r, time.Now()); done || err != nil {
			p.t.Fatalf("Begin without an answer returns %+v, %v, %v", g, done, err)
		}
		asked = proxy.Count(methodTxn) > before
		proxy.DelayReplies(0)
	}
	return r
}
