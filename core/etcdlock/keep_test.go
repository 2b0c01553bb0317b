package etcdlock_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/testservers"
)

// slow is how much longer than it should a server may take that shares its machine with
// others.
const slow = 5 * time.Second

func TestKeptKeyIsFreedByItsProcessOrByItsLease(t *testing.T) {
	t.Parallel()
	const keep = 500 * time.Millisecond
	server := testservers.Etcd(t)
	next := open(t, etcdlock.New(etcdtest.Client(t, server.Addr())))
	for _, tt := range []struct {
		name   string
		closed bool
		most   time.Duration
	}{
		{"by its process", false, keep + 1500*time.Millisecond},
		{"by its lease", true, keep + 6*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			machine := hiccups.Start(t)
			proxy := etcdtest.NewProxy(t, server.Addr())
			p := open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
			start := time.Now()
			g := p.take("k", long)
			e := ending(g)
			e.Keep = keep
			if err := p.Release(within(t), []driver.Ending{e})[0]; err != nil {
				t.Fatal(err)
			}
			st, err := next.Inspect(within(t), "k")
			if time.Since(start) < keep && (err != nil || len(st.Holders) != 1 || !st.Holders[0].Kept) {
				t.Errorf("of a key that is kept, Inspect says %+v, %v", st, err)
			}
			if tt.closed {
				if err := p.Close(within(t)); err != nil {
					t.Fatal(err)
				}
			}
			r := request("k", long)
			r.Wait = true
			g, err = next.Acquire(within(t), r)
			if err != nil {
				t.Fatalf("acquire of a key that is kept for %v: %v", keep, err)
			}
			took := time.Since(start)
			t.Logf("a key kept for %v went to the next after %v", keep, took)
			if took < keep {
				t.Errorf("a key kept for %v was free after %v", keep, took)
			}
			if limit := machine.Allow(tt.most + slow); took > limit {
				t.Errorf("a key kept for %v was free after %v, want at most %v, or %v on this machine", keep, took, tt.most, limit)
			}
			// The first is of the lease that was released, the second ends the keeping.
			for !tt.closed && proxy.Count(methodRevoke) < 2 {
				if time.Since(start) > patience {
					t.Fatal("the process has never ended the keeping")
				}
				yield()
			}
			next.drop(g)
		})
	}
}

// endedLease is a client whose next lease ends before the answer of its grant comes.
type endedLease struct {
	clientv3.Lease
	end atomic.Bool
}

func (c *endedLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	r, err := c.Lease.Grant(ctx, ttl)
	if err == nil && c.end.CompareAndSwap(true, false) {
		_, err = c.Revoke(ctx, r.ID)
	}
	return r, err
}

// The lease of a kept key may last for less long than a release is retried.
func TestReleaseOutlivesTheLeaseOfTheKeyThatItKeeps(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	direct := etcdtest.Client(t, server.Addr())
	next := open(t, etcdlock.New(direct))
	for _, tt := range []struct {
		name string
		keep time.Duration
		lost bool
	}{
		{name: "that ends before the place is on it", keep: 3 * time.Second},
		{name: "that ends with the place, whose answer is lost", keep: long, lost: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := strconv.FormatBool(tt.lost)
			c := etcdtest.Client(t, server.Addr())
			turn, leases := &inTurn{KV: c.KV, replies: make(chan reply, 1)}, &endedLease{Lease: c.Lease}
			c.KV, c.Lease = turn, leases
			p := open(t, etcdlock.New(c))
			start := time.Now()
			g := p.take(key, long)
			e := ending(g)
			e.Keep = tt.keep
			held := newReply(status.Error(codes.Unavailable, "lost"))
			if tt.lost {
				turn.replies <- held
			} else {
				leases.end.Store(true)
			}
			released := make(chan error, 1)
			go func() { released <- p.Release(within(t), []driver.Ending{e})[0] }()
			if tt.lost {
				receive(t, held.came, "the answer of the release")
				if _, err := direct.Revoke(within(t), leaseOf(t, direct, g)); err != nil {
					t.Fatal(err)
				}
				close(held.goOn)
			}
			if err := receive(t, released, "the release"); err != nil {
				t.Errorf("the release of a lease that is held returned %v", err)
			}
			r := request(key, long)
			r.Wait = true
			g, err := next.Acquire(within(t), r)
			if err != nil {
				t.Fatalf("acquire of a key that was kept for %v: %v", tt.keep, err)
			}
			if took := time.Since(start); took < tt.keep && !tt.lost {
				t.Errorf("a key kept for %v was free after %v", tt.keep, took)
			}
			next.drop(g)
		})
	}
}

func TestHolderThatIsGoneDelaysTheNextByItsTTL(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	gone, next := open(t, etcdlock.New(c)), open(t, etcdlock.New(c))
	const ttl = 2 * time.Second
	machine := hiccups.Start(t)
	start := time.Now()
	gone.take("k", ttl) // and never renews it
	r := request("k", long)
	r.Wait = true
	g, err := next.Acquire(within(t), r)
	if err != nil {
		t.Fatalf("acquire after a holder that is gone: %v", err)
	}
	took := time.Since(start)
	t.Logf("after a holder with a TTL of %v is gone the next is served after %v", ttl, took)
	if limit := machine.Allow(ttl + 4*time.Second + slow); took < ttl || took > limit {
		t.Errorf("the next was served after %v, want %v to %v, or %v on this machine", took, ttl, ttl+4*time.Second, limit)
	}
	next.drop(g)
}
