package etcdlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/testservers"
)

const methodTimeToLive = "/etcdserverpb.Lease/LeaseTimeToLive"

// A leader that was stopped does this to leases that were renewed at its successor.
func TestLeaseThatIsRevokedBeforeItsTimeIsWaitedOut(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	far, near := etcdtest.NewProxy(t, server.Addr()), etcdtest.NewProxy(t, server.Addr())
	c := etcdtest.Client(t, server.Addr())
	for _, tt := range []struct {
		name    string
		waiters int
	}{{"by the first waiter", 1}, {"by the second if the first gives up", 2}} {
		t.Run(tt.name, func(t *testing.T) {
			const ttl = 10 * time.Second // a busy machine takes most of it for the polls
			cut := open(t, etcdlock.New(etcdtest.Client(t, far.Addr())))
			g := cut.take("k", ttl)
			ctx, giveUp := context.WithCancel(within(t))
			defer giveUp()
			var last *waiter
			var p *process
			for i := range tt.waiters {
				p = open(t, etcdlock.New(etcdtest.Client(t, near.Addr())))
				if i == tt.waiters-1 {
					ctx = within(t)
				}
				last = p.queue(ctx, "k", long)
			}
			looked := near.Count(methodTimeToLive)
			for near.Count(methodTimeToLive) < looked+4*tt.waiters {
				yield()
			}
			resume := far.Stall() // the holder hears of nothing
			defer resume()
			if _, err := c.Revoke(within(t), leaseOf(t, c, g)); err != nil {
				t.Fatal(err)
			}
			if tt.waiters > 1 {
				giveUp()
			}
			next := last.granted(t)
			if at := time.Now(); at.Before(g.Deadline) {
				t.Errorf("the next had the key %v before the holder's deadline", g.Deadline.Sub(at))
			}
			if next.Token <= g.Token {
				t.Errorf("token %d after %d", next.Token, g.Token)
			}
			p.drop(next)
		})
	}
}

func TestLeaseThatHasExpiredIsNotWaitedOut(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	gone, next := open(t, etcdlock.New(c)), open(t, etcdlock.New(c))
	const ttl = 6 * time.Second
	g := gone.take("k", ttl) // and never renews it
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	ends := c.Watch(ctx, etcdlock.KeyPrefix, clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithRev(g.Token))
	machine := hiccups.Start(t)
	w := next.queue(within(t), "k", long)
	for r := range ends {
		if len(r.Events) > 0 {
			break
		}
	}
	expired := time.Now()
	w.granted(t)
	took := time.Since(expired)
	t.Logf("the next had the key %v after the lease had expired", took)
	if most := machine.Allow(ttl / 2); took > most {
		t.Errorf("the next had the key %v after the lease had expired, want less than %v, or %v on this machine", took, ttl/2, most)
	}
}

// lateWatcher begins its watches when told to.
type lateWatcher struct {
	clientv3.Watcher
	begin <-chan struct{}
}

func (w lateWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	select {
	case <-w.begin:
	case <-ctx.Done():
	}
	return w.Watcher.Watch(ctx, key, opts...)
}

// The mark of an etcd lease that was given up goes after seconds. Whoever looks then must not take its
// owner for one who still holds the key.
func TestWaiterBelievesAnOwnerThatGaveItsPlaceUpLongAgo(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	for i, tt := range []struct {
		name    string
		waiters int
		late    bool // the last waiter's watches begin when the holder's lease has moved
		moves   bool
		leaves  bool // the first waiter gives up
	}{
		{name: "one that waited, two places before", waiters: 3, leaves: true},
		{name: "a lease that moved, two places before", waiters: 2, moves: true},
		{name: "a lease that moved before the watch", waiters: 1, moves: true, late: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			key := strconv.Itoa(i)
			holder := open(t, etcdlock.New(c))
			g := holder.take(key, long)
			ctx, giveUp := context.WithCancel(within(t))
			defer giveUp()
			begin := make(chan struct{})
			var waiters []*waiter
			var processes []*process
			for i := range tt.waiters {
				client := etcdtest.Client(t, server.Addr())
				if i == tt.waiters-1 && tt.late {
					client.Watcher = lateWatcher{client.Watcher, begin}
				}
				p := open(t, etcdlock.New(client))
				waiters, processes = append(waiters, p.queue(ctx, key, long)), append(processes, p)
				if i == 0 && tt.leaves {
					ctx = within(t)
				}
			}
			var left clientv3.LeaseID
			if tt.moves {
				left = leaseOf(t, c, g)
				if out := holder.renew(g, 2*long); out.Err != nil {
					t.Fatal(out.Err)
				}
				close(begin)
			}
			if tt.leaves {
				queue, err := c.Get(within(t), etcdlock.KeyPrefix+key+"/q/", clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend), clientv3.WithPrefix())
				if err != nil || len(queue.Kvs) != 1+tt.waiters {
					t.Fatalf("read the queue: %v, %v", queue, err)
				}
				left = clientv3.LeaseID(queue.Kvs[1].Lease)
				giveUp()
				if r := receive(t, waiters[0].done, "the end of the waiter that gave up"); r.err == nil {
					t.Fatal("a waiter was granted a key that is held")
				}
				if err := processes[0].Close(within(t)); err != nil { // or else it keeps the lease as a spare
					t.Fatal(err)
				}
				waiters, processes = waiters[1:], processes[1:]
			}
			for mark := fmt.Sprintf("%s%%/%x", etcdlock.KeyPrefix, int64(left)); ; {
				r, err := c.Get(within(t), mark)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Kvs) == 0 {
					break
				}
				yield()
			}
			holder.drop(g)
			for i, w := range waiters {
				select {
				case r := <-w.done:
					if r.err != nil {
						t.Fatal(i, r.err)
					}
					processes[i].drop(r.Grant)
				case <-time.After(15 * time.Second): // the lease lasts for minutes
					t.Fatalf("waiter %d of %d is not granted a free key", i, len(waiters))
				}
			}
		})
	}
}

// A client that was cut off for longer than its place lasts knows nothing of those before it.
func TestWaiterThatWasCutOffWaitsOutOnlyThoseWhoseLeaseHasGone(t *testing.T) {
	t.Parallel()
	server := testservers.Etcd(t)
	c := etcdtest.Client(t, server.Addr())
	for i, tt := range []struct {
		name      string
		meanwhile func(holder *process, g driver.Grant)
		after     func(holder *process, g driver.Grant)
		hidden    bool
	}{
		{name: "who has the key still", after: (*process).drop},
		{name: "who has released it", meanwhile: (*process).drop},
		{name: "whose lease was revoked", meanwhile: func(p *process, g driver.Grant) {
			if _, err := c.Revoke(within(p.t), leaseOf(p.t, c, g)); err != nil {
				p.t.Fatal(err)
			}
		}, hidden: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			proxy := etcdtest.NewProxy(t, server.Addr())
			holder, p := open(t, etcdlock.New(c)), open(t, etcdlock.New(etcdtest.Client(t, proxy.Addr())))
			key, ttl := strconv.Itoa(i), long
			if tt.hidden {
				ttl = 20 * time.Second
			}
			g := holder.take(key, ttl)
			w := p.queue(within(t), key, 5*time.Second)
			resume := proxy.Stall()
			if tt.meanwhile != nil {
				tt.meanwhile(holder, g)
			}
			if r := receive(t, w.done, "the end of a wait that was cut off"); r.err == nil {
				t.Fatal("a waiter that was cut off was granted the key")
			}
			resume()
			r := request(key, long)
			r.Wait = true
			next := make(chan result, 1)
			go func() {
				g, err := p.Acquire(within(t), r)
				next <- result{g, err}
			}()
			if tt.after != nil {
				receive(t, p.event(p.waiting, r.ID), "Sink.Waiting")
				tt.after(holder, g)
			}
			got := (&waiter{done: next}).granted(t)
			if at := time.Now(); tt.hidden && at.Before(g.Deadline) {
				t.Errorf("the next had the key %v before the holder's deadline", g.Deadline.Sub(at))
			}
			p.drop(got)
		})
	}
}

// TestLeaderThatWasStoppedOverlapsNobody stops the leader as often as LOCKAROUND_COUNTS says of
// pauses. Each has a dozen leases revoked before their time. It is a figure: with etcd 3.4.23 one
// in a hundred holds still overlaps another for a moment, with 3.6.5 none of a thousand did.
func TestLeaderThatWasStoppedOverlapsNobody(t *testing.T) {
	rounds := counts.Of(t, "pauses", 0, 0)
	if rounds == 0 {
		t.Skip("takes minutes: set " + counts.Asks("pauses", 20))
	}
	members := testservers.EtcdCluster(t, 3)
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	const ttl, processes, keys = 3 * time.Second, 3, 12
	var (
		mu    sync.Mutex
		holds = make([][]hold, keys)
		over  = make(chan struct{})
		all   sync.WaitGroup
	)
	for i := range processes {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: append(addrs[i:len(addrs):len(addrs)], addrs[:i]...), DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
			Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		locks, err := core.New(etcdlock.New(c), core.WithNamespace("paused"), core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = locks.Close() // a member may be stopped
			_ = c.Close()
		})
		for key := range keys {
			all.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-over:
						return
					default:
					}
					lease, err := locks.Acquire(t.Context(), core.Policy{Key: strconv.Itoa(key), TTL: ttl, Wait: 30 * time.Second})
					if err != nil {
						continue // while there is no leader
					}
					h := hold{from: time.Now(), token: lease.Token()}
					body := time.NewTimer(time.Duration(3+(n+i+key)%6) * time.Second)
					select {
					case <-lease.Done():
					case <-over:
					case <-body.C:
					}
					body.Stop()
					h.to = time.Now()
					mu.Lock()
					holds[key] = append(holds[key], h)
					mu.Unlock()
					_ = lease.Release(context.Background()) // it may have been lost
				}
			})
		}
	}
	for n := range rounds {
		time.Sleep(3 * time.Second)
		m := leader(t, members)
		m.Pause()
		time.Sleep(1500*time.Millisecond + time.Duration(n%4)*time.Second)
		m.Resume()
	}
	time.Sleep(ttl)
	close(over)
	all.Wait()
	mu.Lock()
	defer mu.Unlock()
	n := 0
	for _, of := range holds {
		n += len(of)
		verify(t, of)
	}
	t.Logf("%d holds over %d pauses", n, rounds)
	if n < keys {
		t.Error("which is too few to say anything")
	}
}

// leaseOf returns the lease of etcd that a place is on.
func leaseOf(t testing.TB, c *clientv3.Client, g driver.Grant) clientv3.LeaseID {
	t.Helper()
	r, err := c.Get(within(t), etcdlock.KeyPrefix+g.Key+"/q/"+placeOf(g))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		t.Fatal("the owner has no place")
	}
	return clientv3.LeaseID(r.Kvs[0].Lease)
}
