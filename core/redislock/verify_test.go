package redislock_test

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestServerThatHasForgottenALeaseTellsItsHolderWhenItIsBack(t *testing.T) {
	server := testservers.Redis(t)
	e := newEngine(t, redis.NewClient(&redis.Options{Addr: server.Addr()}))
	const ttl = 10 * hang // renewed every third of it
	renewed := e.take(t, "renewed", ttl)
	once, err := e.Acquire(t.Context(), core.Policy{Key: "once", TTL: ttl, NoRenew: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Ping(t.Context()); err != nil { // the subscription is up
		t.Fatal(err)
	}
	server.Restart()
	soon := bounded(t)
	for _, l := range []*core.Lease{renewed, once} {
		select {
		case <-l.Done():
		case <-soon.Done():
		}
		if !errors.Is(l.Err(), core.ErrLost) {
			t.Errorf("%s after the restart: %v; want ErrLost well before the next renewal", l.Key(), l.Err())
		}
		_ = l.Release(t.Context()) // it was lost
	}
	giveBack(t, e.take(t, "renewed", ttl))
}

func TestSubscriptionThatBreaksCostsNoLeaseAndRenewsNone(t *testing.T) {
	server := testservers.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	e := newEngine(t, client)
	lease, err := e.Acquire(t.Context(), core.Policy{Key: "k", TTL: lasting, NoRenew: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Ping(t.Context()); err != nil { // the subscription is up
		t.Fatal(err)
	}
	deadline := lease.Deadline()
	before := commands(t, client)
	if answer, err := server.Do("CLIENT", "KILL", "TYPE", "pubsub"); err != nil || answer != "1" {
		t.Fatalf("CLIENT KILL: %s, %v", answer, err)
	}
	eventually(t, "a fresh subscription", func() bool { return commands(t, client)["subscribe"] > before["subscribe"] })
	eventually(t, "a look at the lease", func() bool {
		return commands(t, client)["evalsha"]+commands(t, client)["eval"] > before["evalsha"]+before["eval"]
	})
	if err := lease.Err(); err != nil {
		t.Errorf("a lease that is held: %v", err)
	}
	if !lease.Deadline().Equal(deadline) {
		t.Errorf("a lease that is not renewed lasts until %v, and %v after its server was asked", deadline, lease.Deadline())
	}
	giveBack(t, lease)
}
