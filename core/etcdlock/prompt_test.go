package etcdlock_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
)

// Acquire would otherwise find the key taken by its own request.
func TestRequestThatHadNoAnswerIsGrantedWhatItHasTaken(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		server := etcdtest.Start(t)
		proxy := etcdtest.NewProxy(t, server.Addr())
		p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
		prompt := p.Session.(driver.Prompt)
		r := request("k", long)
		r.Wait = wait
		for asked := false; !asked; { // Begin asks while etcd is quick, which a busy machine may not let it be
			p.drop(p.take("k", long)) // leaves a spare
			proxy.DelayReplies(2 * driver.Promptness)
			before := proxy.Count(methodTxn)
			if g, done, err := prompt.Begin(r, time.Now()); done || err != nil {
				t.Fatalf("Begin without an answer returns %+v, %v, %v", g, done, err)
			}
			asked = proxy.Count(methodTxn) > before
			proxy.DelayReplies(0)
		}
		g, err := p.Acquire(within(t), r)
		if err != nil {
			t.Fatalf("wait %v: Acquire after it returns %v", wait, err)
		}
		p.drop(g)
	}
}
