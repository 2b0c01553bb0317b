package redislock_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

const wake = time.Second

// wokenInTime fails the test if a waiter of a real server was granted the key later than
// wake promises, unless this machine or the server on it was slow. TestSimulation holds the
// promise to the millisecond; whom nothing wakes at all waits for minutes.
func wokenInTime(t testing.TB, machine *hiccups.Meter, late time.Duration) {
	t.Helper()
	bound := wake
	if !counts.Full(t) {
		bound += 5 * time.Second
	}
	if limit := machine.Allow(bound); late > limit {
		t.Errorf("woken %v late, want at most %v, or %v on this machine", late, wake, limit)
	}
}

func TestLostPushDelaysAWaiterByWakeAtMost(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	proxy := redistest.NewProxy(t, server.Addr())
	a, b := join(t, server.Addr()), join(t, proxy.Addr())
	warm(a, b)
	defer proxy.LosePushes()()
	for range 3 {
		g := a.take("k", lasting)
		_, c := b.queue("k", lasting)
		machine := hiccups.Start(t)
		a.release(g)
		released := time.Now()
		o := await(t, c)
		if o.err != nil {
			t.Fatal(o.err)
		}
		wokenInTime(t, machine, o.at.Sub(released))
		b.release(o.Grant)
	}
}

func TestSilentSubscriptionIsReplacedAfterTwoMissedGrants(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	proxy := redistest.NewProxy(t, server.Addr())
	// Its silence alone would be noticed much later.
	a, b := join(t, server.Addr()), joinWithin(t, proxy.Addr(), 10*hang)
	warm(a, b)
	count := func() int { return commands(t, a.client)["subscribe"] }
	before := count()
	defer proxy.LosePushes()()
	for limit := bounded(t); count() == before; { // or more, if this machine has kept the waiter from being one
		if limit.Err() != nil {
			t.Fatal("no fresh subscription")
		}
		g := a.take("k", lasting)
		_, c := b.queue("k", lasting)
		a.release(g)
		o := await(t, c)
		if o.err != nil {
			t.Fatal(o.err)
		}
		b.release(o.Grant)
	}
}

// TestLeaseFromBeforeTheSubscriptionLearnsOfWaiters keeps a process from subscribing
// until another one waits for its lease, which never says so again.
func TestLeaseFromBeforeTheSubscriptionLearnsOfWaiters(t *testing.T) {
	server := testservers.Redis(t)
	acl := func(words ...string) {
		t.Helper()
		if answer, err := server.Do(append([]string{"ACL", "SETUSER", "deaf"}, words...)...); err != nil {
			t.Fatalf("ACL SETUSER: %s, %v", answer, err)
		}
	}
	acl("on", ">secret", "~*", "+@all", "resetchannels")
	a := join(t, server.Addr(), func(o *redis.Options) { o.Username, o.Password = "deaf", "secret" })
	g := a.take("k", lasting)
	waiter := protocol.AcquireArgs{
		Owner: newID("k").Owner, Channel: redislock.ChannelPrefix + "waiter", Length: lasting, PlaceTTL: lasting, Create: true, Wait: true,
	}
	value, err := newClient(t, redis.Options{Addr: server.Addr()}).
		Eval(t.Context(), protocol.Acquire.Source, []string{protocol.Key("k")}, waiter.Args()...).Result()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := protocol.ParseAcquire(value); err != nil || r.Status != protocol.Queued {
		t.Fatalf("a waiter is %v, %v", r.Status, err)
	}
	acl("allchannels")
	select {
	case id := <-a.sink.contended:
		if id != g.ID {
			t.Error("another lease is contended")
		}
	case <-bounded(t).Done():
		t.Error("the holder was not told that another process waits")
	}
	a.release(g)
}
