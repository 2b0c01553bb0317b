package redislock_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/redislock/internal/redistest"
)

const wake = time.Second

func TestLostPushDelaysAWaiterByWakeAtMost(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	a, b := join(t, server.Addr()), join(t, proxy.Addr())
	warm(a, b)
	defer proxy.LosePushes()()
	for range 3 {
		g := a.take("k", time.Minute)
		_, c := b.queue("k", time.Minute)
		a.release(g)
		released := time.Now()
		o := await(t, c)
		if o.err != nil {
			t.Fatal(o.err)
		}
		if late := o.at.Sub(released); late > wake+drivertest.Slack {
			t.Errorf("woken %v after the release", late)
		}
		b.release(o.Grant)
	}
}

func TestSilentSubscriptionIsReplacedAfterTwoMissedGrants(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr())
	a, b := join(t, server.Addr()), joinWithin(t, proxy.Addr(), time.Minute)
	warm(a, b)
	count := func() int { return commands(t, a.client)["subscribe"] }
	before := count()
	restore := proxy.LosePushes()
	for range 2 {
		g := a.take("k", time.Minute)
		_, c := b.queue("k", time.Minute)
		a.release(g)
		o := await(t, c)
		if o.err != nil {
			t.Fatal(o.err)
		}
		b.release(o.Grant)
	}
	restore()
	eventually(t, 10*time.Second, "a fresh subscription", func() bool { return count() > before })
}
