package redislock_test

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
	"github.com/lockaround/lockaround/core/testservers"
)

// hearer is a sink that also hears who holds the keys that its session waits for.
type hearer struct {
	*sink
	taken chan driver.Origin
}

func (f hearer) TakenBy(_ driver.ID, holder driver.Origin) { f.taken <- holder }

// called opens the session of a process of that name.
func called(t *testing.T, addr, identity string) (driver.Session, hearer) {
	t.Helper()
	f := hearer{newSink(), make(chan driver.Origin, 1024)}
	client := newClient(t, redis.Options{Addr: addr})
	s, err := redislock.New(client).Open(driver.Config{Sink: f, StoreTimeout: attempt, Identity: identity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), hang)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close the session: %v", err)
		}
	})
	return s, f
}

// hears waits until the hearer is told that a process of that name holds the key.
func (f hearer) hears(t *testing.T, identity string) {
	t.Helper()
	for limit := bounded(t).Done(); ; {
		select {
		case got := <-f.taken:
			if got.Identity == identity {
				return
			}
		case <-limit:
			t.Fatalf("nobody says that %s holds the key", identity)
		}
	}
}

func TestWaiterLearnsWhoHoldsAfterAHandOver(t *testing.T) {
	t.Parallel()
	server := testservers.Redis(t)
	a, _ := called(t, server.Addr(), "orders-1")
	b, heardB := called(t, server.Addr(), "orders-2")
	c, heardC := called(t, server.Addr(), "orders-3")
	g, err := a.Acquire(bounded(t), driver.Request{ID: newID("k"), TTL: lasting})
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan driver.Grant, 2)
	wait := func(s driver.Session, heard hearer) {
		t.Helper()
		r := driver.Request{ID: newID("k"), TTL: lasting, Wait: true}
		go func() {
			g, err := s.Acquire(bounded(t), r)
			if err != nil {
				t.Error(err)
			}
			granted <- g
		}()
		heard.hears(t, "orders-1")
		<-heard.waiting
	}
	wait(b, heardB)
	wait(c, heardC)
	for _, s := range []driver.Session{a, b, c} {
		if err := s.Release(bounded(t), []driver.Ending{{ID: g.ID, Token: g.Token, Deadline: g.Deadline}})[0]; err != nil {
			t.Fatal(err)
		}
		if s != c {
			g = <-granted
		}
		if s == a {
			heardC.hears(t, "orders-2") // by a refresh of its place
		}
	}
}

func TestSessionsOfEarlierReleasesHaveNoIdentity(t *testing.T) {
	server := testservers.Redis(t)
	s, _ := called(t, server.Addr(), "orders-1")
	earlier := protocol.AcquireArgs{
		Owner: newID("k").Owner, Channel: redislock.ChannelPrefix + "0123456789abcdef0123456789abcdef", Length: lasting, PlaceTTL: protocol.MaxPlaceTTL, Create: true,
	}
	if err := newClient(t, redis.Options{Addr: server.Addr()}).
		Eval(t.Context(), protocol.Acquire.Source, []string{protocol.Key("k"), protocol.Stream(protocol.Key("k"))}, earlier.Args()...).Err(); err != nil {
		t.Fatal(err)
	}
	st, err := s.Inspect(bounded(t), "k")
	if err != nil || len(st.Holders) != 1 || st.Holders[0].Known() {
		t.Errorf("%+v, %v", st, err)
	}
}
