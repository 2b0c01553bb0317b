package redislock_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/redislock"
	"github.com/lockaround/lockaround/core/testservers"
)

func noRetries(o *redis.Options) { o.MaxRetries = -1 }

// retries are the ways that a client may be set to repeat commands unasked.
var retries = map[string]func(*redis.Options){
	"with the client's retries": func(*redis.Options) {},
	"without retries":           noRetries,
}

func TestLostReplyOfAnAcquireLeavesNoGhost(t *testing.T) {
	for name, set := range retries {
		t.Run(name, func(t *testing.T) {
			server := testservers.Redis(t)
			proxy := redistest.NewProxy(t, server.Addr())
			a, b := join(t, proxy.Addr(), set), join(t, server.Addr())
			warm(a, b)
			dropped := proxy.DropReply(requests[drivertest.OpAcquire])
			g, err := a.try("k", lasting)
			if !dropped() {
				t.Fatal("no reply was lost")
			}
			if err == nil {
				if _, err := b.try("k", lasting); err == nil {
					t.Fatal("granted twice")
				}
				a.release(g)
			}
			eventually(t, "the key being free", func() bool { return b.free("k") })
		})
	}
}

func TestLostReplyOfARenewalIsRepeated(t *testing.T) {
	for name, set := range retries {
		t.Run(name, func(t *testing.T) {
			server := testservers.Redis(t)
			proxy := redistest.NewProxy(t, server.Addr())
			a := join(t, proxy.Addr(), set)
			warm(a)
			g := a.take("k", lasting)
			dropped := proxy.DropReply(requests[drivertest.OpRenew])
			r := a.renew(g, lasting)
			if errors.Is(r.Err, driver.ErrNotHeld) {
				t.Fatal("a renewal whose reply was lost reports the lease as lost")
			}
			if !dropped() {
				t.Fatal("no reply was lost")
			}
			if r = a.renew(g, lasting); r.Err != nil {
				t.Fatalf("second renewal: %v", r.Err)
			}
			a.release(g)
		})
	}
}

func TestReleaseRepeatedAfterALostReplyIsNoError(t *testing.T) {
	for name, set := range retries {
		t.Run(name, func(t *testing.T) {
			server := testservers.Redis(t)
			proxy := redistest.NewProxy(t, server.Addr())
			a, b := join(t, proxy.Addr(), set), join(t, server.Addr())
			warm(a, b)
			g := a.take("k", lasting)
			dropped := proxy.DropReply(requests[drivertest.OpRelease])
			err := a.end(g)
			if !dropped() {
				t.Fatal("no reply was lost")
			}
			// The next owner's grant must not make the repetition look wrong.
			b.take("k", lasting)
			if err != nil {
				err = a.end(g)
			}
			if err != nil {
				t.Errorf("release after a lost reply: %v", err)
			}
			if _, err := a.try("k", lasting); !errors.As(err, new(*driver.HeldError)) {
				t.Errorf("the next owner was disturbed: %v", err)
			}
		})
	}
}

func TestReleaseAfterExpiryLeavesNextOwnerAlone(t *testing.T) {
	server := testservers.Redis(t)
	a, b := join(t, server.Addr()), join(t, server.Addr())
	g := a.take("k", 50*time.Millisecond)
	_, c := b.start(bounded(t), driver.Request{ID: newID("k"), TTL: lasting, Wait: true})
	if o := await(t, c); o.err != nil {
		t.Fatal(o.err)
	}
	if err := a.end(g); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release after expiry: %v", err)
	}
	if _, err := a.try("k", lasting); !errors.As(err, new(*driver.HeldError)) {
		t.Errorf("the next owner was disturbed: %v", err)
	}
}

// The connection breaks between the answer that the key was taken and that to the draw.
func TestTokenThatWasLostOnTheWayIsDrawnAgain(t *testing.T) {
	client := newClient(t, redis.Options{Addr: testservers.Redis(t).Addr()})
	var lost atomic.Int32
	e, err := core.New(redislock.New(client, redislock.WithFirstTokensLost(3, &lost)), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 5 {
		l, err := e.Acquire(t.Context(), core.Policy{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		if l.Token() == 0 {
			t.Error("a lease without a token")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lost.Load() != 3 {
		t.Errorf("%d tokens were lost, want 3", lost.Load())
	}
}
