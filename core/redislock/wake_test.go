package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/redistest"
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

// TestLeaseFromBeforeTheSubscriptionLearnsOfWaiters keeps a process from subscribing
// until another one waits for its lease, and is then too stuck to say so again.
func TestLeaseFromBeforeTheSubscriptionLearnsOfWaiters(t *testing.T) {
	server := redistest.Start(t)
	acl := func(words ...string) {
		t.Helper()
		if answer, err := server.Do(append([]string{"ACL", "SETUSER", "deaf"}, words...)...); err != nil || answer != "+OK" {
			t.Fatalf("ACL SETUSER: %s, %v", answer, err)
		}
	}
	acl("on", ">secret", "~*", "+@all", "resetchannels")
	proxy := redistest.NewProxy(t, server.Addr())
	a := join(t, server.Addr(), func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" })
	b := join(t, proxy.Addr())
	g := a.take("k", time.Minute)
	_, waits := b.queue("k", time.Minute)
	resume := proxy.Stall()
	acl("allchannels")
	select {
	case id := <-a.sink.contended:
		if id != g.ID {
			t.Error("another lease is contended")
		}
	case <-within(t, 10*time.Second).Done():
		t.Error("the holder was not told that another process waits")
	}
	resume()
	a.release(g)
	b.release(await(t, waits).Grant)
}
