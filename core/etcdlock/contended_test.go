package etcdlock_test

import (
	"testing"

	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
)

// Those who waited before the grant are in no event after it.
func TestGrantWhoseReplyWasLostSaysThatOthersWait(t *testing.T) {
	t.Parallel()
	server := etcdtest.Start(t)
	proxy := etcdtest.NewProxy(t, server.Addr())
	direct := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
	before := direct.take("k", long)
	w := p.queue(within(t), "k", long)
	last := direct.queue(within(t), "k", long)
	dropped := proxy.DropReply(takes)
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
