package redislock_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

func TestGrantToNobodyIsEndedForGood(t *testing.T) {
	server := testservers.Redis(t)
	const channel = redislock.ChannelPrefix + "test"
	rdb := newClient(t, redis.Options{Addr: server.Addr()})
	s, err := redislock.New(rdb, redislock.WithChannel(func() string { return channel })).
		Open(driver.Config{Sink: newSink(), StoreTimeout: attempt})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(bounded(t)); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Ping(bounded(t)); err != nil {
		t.Fatal(err)
	}
	// A late copy of a request has put an owner into the queue that was given up.
	ghost := newID("k")
	args := protocol.AcquireArgs{Owner: ghost.Owner, Channel: channel, Length: lasting, PlaceTTL: time.Second, Create: true}
	acquire := func() protocol.AcquireReply {
		value, err := rdb.Eval(t.Context(), protocol.Acquire.Source, []string{protocol.Key("k")}, args.Args()...).Result()
		if err != nil {
			t.Fatal(err)
		}
		r, err := protocol.ParseAcquire(value)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	granted := acquire()
	if granted.Status != protocol.Granted {
		t.Fatal(granted.Status)
	}
	push := fmt.Sprintf("g%s%d:0:%s", ghost.Owner[:], granted.Token, protocol.Key("k"))
	if err := rdb.Publish(t.Context(), channel, push).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key being free", func() bool {
		st, err := s.Inspect(bounded(t), "k")
		return err == nil && !st.Held
	})
	if again := acquire(); again.Status != protocol.Over {
		t.Errorf("a copy that is later still: %v, want %v", again.Status, protocol.Over)
	}
}

// A session sends each command once, whatever its client does with others.
func TestTakenKeyCostsOneScriptAndNoCleanUp(t *testing.T) {
	for name, set := range retries {
		t.Run(name, func(t *testing.T) {
			server := testservers.Redis(t)
			a, b := join(t, server.Addr()), join(t, server.Addr(), set, func(o *redis.Options) { o.MinRetryBackoff = -1 })
			warm(a, b)
			a.take("k", lasting)
			before := scripts(commands(t, a.client))
			if _, err := b.try("k", lasting); !errors.As(err, new(*driver.HeldError)) {
				t.Fatalf("a taken key: %v", err)
			}
			// Closing finishes the clean-ups.
			if err := b.Close(bounded(t)); err != nil {
				t.Fatal(err)
			}
			if n := scripts(commands(t, a.client)) - before; n != 1 {
				t.Errorf("%d scripts, want 1", n)
			}
		})
	}
}

func TestWaitersThatWereCancelledLeaveNothing(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	warm(a, b)
	g := a.take("k", lasting)
	gather(200, func(i int) {
		ctx := within(t, time.Duration(i)*100*time.Microsecond)
		if _, err := b.Acquire(ctx, driver.Request{ID: newID("k"), TTL: lasting, Wait: true}); err == nil {
			t.Error("a held key was granted")
		}
	})
	// Closing finishes the clean-ups.
	if err := b.Close(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if st, err := a.Inspect(bounded(t), "k"); err != nil || st.Waiting != 0 {
		t.Errorf("%d still wait, %v", st.Waiting, err)
	}
	a.release(g)
	eventually(t, "the key being free", func() bool { return a.free("k") })
}
