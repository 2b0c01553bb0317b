package zklock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/zklock"
)

// TestRoomBesideALoweredWriterIsFoundSoon has a semaphore of two, of which a writer that has lowered
// its lease takes one place.
func TestRoomBesideALoweredWriterIsFoundSoon(t *testing.T) {
	t.Parallel()
	d := zklock.New([]string{zktest.Start(t, warm).Addr()}, long)
	writer, first, second := open(t, d), open(t, d), open(t, d)
	machine := hiccups.Start(t)
	for _, mode := range []driver.Mode{driver.Semaphore, driver.Shared} {
		t.Run(mode.String(), func(t *testing.T) {
			lowered := writer.takeLowered("k")
			g, err := first.Acquire(t.Context(), permit("k", hold))
			if err != nil {
				t.Fatalf("a place beside a writer that has lowered its lease: %v", err)
			}
			r := permit("k", hold)
			if mode == driver.Shared {
				r.Mode, r.Limit = driver.Shared, 0
			}
			w := second.queueAs(r)
			first.drop(g)
			freed := time.Now()
			next := await(t, "the grant of the place that became free", w)
			if next.err != nil {
				t.Fatal(next.err)
			}
			if late, limit := next.at.Sub(freed), machine.Allow(d.Capabilities().Wake+slow); late > limit {
				t.Errorf("the place was found after %v, want at most %v on this machine", late, limit)
			}
			second.drop(next.Grant)
			writer.drop(lowered)
		})
	}
}

// TestHoldersBesideALoweredWriterAreToldOfWaiters asks for one more place than a semaphore has. The
// lowered lease takes one of them.
func TestHoldersBesideALoweredWriterAreToldOfWaiters(t *testing.T) {
	t.Parallel()
	d := zklock.New([]string{zktest.Start(t, warm).Addr()}, long)
	writer, beside, next := open(t, d), open(t, d), open(t, d)
	lowered := writer.takeLowered("k")
	g, err := beside.Acquire(t.Context(), permit("k", hold))
	if err != nil {
		t.Fatalf("a place beside a writer that has lowered its lease: %v", err)
	}
	w := next.queueAs(permit("k", hold))
	await(t, "the writer's news of a waiter", writer.told(writer.contended, lowered.ID))
	await(t, "the other holder's news of a waiter", beside.told(beside.contended, g.ID))
	writer.drop(lowered)
	next.drop(granted(t, "the grant of the writer's place", w))
	beside.drop(g)
}

// TestCrashedHolderBesideALoweredWriterIsFollowedAfterItsTTL makes the node of a holder that has
// crashed. Nobody renews it, and its session lasts.
func TestCrashedHolderBesideALoweredWriterIsFollowedAfterItsTTL(t *testing.T) {
	t.Parallel()
	s := zktest.Start(t, warm)
	d := zklock.New([]string{s.Addr()}, long)
	writer, next := open(t, d), open(t, d)
	lowered := writer.takeLowered("k")
	crashed := zklock.DefaultRoot + "/=k/s2-" + strings.Repeat("0", 32) + "-"
	if _, err := raw(t, s).Create(crashed, []byte("placed 1000"), zk.FlagEphemeralSequential, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	next.drop(granted(t, "the grant of the place of a holder that has crashed", next.queueAs(permit("k", hold))))
	writer.drop(lowered)
}

// permit asks for one of two places.
func permit(key string, ttl time.Duration) driver.Request {
	r := request(key, ttl)
	r.Mode, r.Limit = driver.Semaphore, 2
	return r
}

// takeLowered acquires a key that must be free, and lowers the lease.
func (p *process) takeLowered(key string) driver.Grant {
	p.t.Helper()
	g := p.take(key, hold)
	if err := p.Renew(p.t.Context(), []driver.Renewal{{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: hold, Share: true}})[0].Err; err != nil {
		p.t.Fatalf("lowering a lease: %v", err)
	}
	return g
}
