package etcdlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/etcdlock"
	"github.com/lockaround/lockaround/core/etcdlock/internal/etcdtest"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/testservers"
)

// leader returns the member that leads.
func leader(t *testing.T, members []*testservers.Server) *testservers.Server {
	t.Helper()
	ctx := within(t)
	for ctx.Err() == nil {
		for _, m := range members {
			st, err := etcdtest.Client(t, m.Addr()).Status(ctx, m.Addr())
			if err == nil && st.Leader != 0 && st.Leader == st.Header.MemberId {
				return m
			}
		}
	}
	t.Fatal("no member leads")
	return nil
}

// hold is the time in which a caller believed that it held the key.
type hold struct {
	from, to time.Time
	token    int64
}

func TestLeaderKilledUnderLoadOverlapsNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for seconds")
	}
	t.Parallel()
	const processes, callers, rounds = 3, 3, 12
	members := testservers.EtcdCluster(t, 3)
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	ctx := within(t)
	var (
		mu      sync.Mutex
		holds   []hold
		running sync.WaitGroup
		half    = make(chan struct{})
		once    sync.Once
		failure = make(chan error, processes*callers)
	)
	for range processes {
		p := open(t, etcdlock.New(etcdtest.Client(t, addrs...)))
		for range callers {
			running.Go(func() {
				for range rounds {
					h, err := p.once(ctx, "k")
					if err != nil {
						failure <- err
						return
					}
					mu.Lock()
					holds = append(holds, h)
					if len(holds) == processes*callers*rounds/3 {
						once.Do(func() { close(half) })
					}
					mu.Unlock()
				}
			})
		}
	}
	receive(t, half, "a third of the load")
	dead := leader(t, members)
	dead.Kill()
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	receive(t, done, "the load with the leader killed")
	select {
	case err := <-failure:
		t.Fatalf("with the leader killed: %v", err)
	default:
	}
	if len(holds) != processes*callers*rounds {
		t.Errorf("%d of %d finished", len(holds), processes*callers*rounds)
	}
	verify(t, holds)
}

// once takes the key, holds it for a moment and gives it back, and asks again as long
// as the cluster cannot be reached.
func (p *process) once(ctx context.Context, key string) (hold, error) {
	for {
		r := request(key, 5*time.Second) // soon over if the request by which it ends is lost
		r.Wait = true
		g, err := p.Acquire(ctx, r)
		if err != nil {
			if refused := new(driver.PermanentError); ctx.Err() != nil || errors.As(err, &refused) || isHeld(err) {
				return hold{}, fmt.Errorf("acquire: %w", err)
			}
			continue
		}
		h := hold{from: time.Now(), token: g.Token}
		yield()
		h.to = time.Now()
		if g.Deadline.Before(h.to) {
			h.to = g.Deadline
		}
		for {
			err := p.Release(ctx, []driver.Ending{ending(g)})[0]
			if err == nil || errors.Is(err, driver.ErrNotHeld) {
				return h, nil
			}
			if ctx.Err() != nil {
				return hold{}, fmt.Errorf("release: %w", err)
			}
		}
	}
}

// yield lets other goroutines run, so that a second holder would show.
func yield() {
	timer := time.NewTimer(time.Millisecond)
	defer timer.Stop()
	<-timer.C
}

// verify fails the test if two holds overlap, or a later one has no larger token.
func verify(t *testing.T, holds []hold) {
	t.Helper()
	byToken := make(map[int64]bool)
	for i, a := range holds {
		if byToken[a.token] {
			t.Errorf("token %d was issued twice", a.token)
		}
		byToken[a.token] = true
		for _, b := range holds[i+1:] {
			if !a.to.After(a.from) || !b.to.After(b.from) {
				continue // it was over when it began, and claims nothing
			}
			if a.from.Before(b.to) && b.from.Before(a.to) {
				both := min(a.to.Sub(b.from), b.to.Sub(a.from))
				t.Errorf("two callers held the key at once for %v, with tokens %d and %d", both, a.token, b.token)
			}
			if a.from.Before(b.from) != (a.token < b.token) {
				t.Errorf("tokens %d and %d are not in the order of their holds", a.token, b.token)
			}
		}
	}
}

func TestLeaseSurvivesTheLeader(t *testing.T) {
	t.Parallel()
	members := testservers.EtcdCluster(t, 3)
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	c := etcdtest.Client(t, addrs...)
	p, q := open(t, etcdlock.New(c)), open(t, etcdlock.New(etcdtest.Client(t, addrs...)))
	g := p.take("k", long)
	w := q.queue(within(t), "k", long)
	leader(t, members).Kill()
	renewed := false
	ctx := within(t)
	for !renewed && ctx.Err() == nil {
		out := p.renew(g, long)
		if errors.Is(out.Err, driver.ErrNotHeld) {
			t.Fatal("the lease was lost with the leader")
		}
		renewed = out.Err == nil
	}
	if !renewed {
		t.Fatal("no renewal succeeded without the old leader")
	}
	p.drop(g)
	next := w.granted(t)
	if next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
	q.drop(next)
}

// soon returns a context that ends by itself.
func soon(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func TestMinorityGrantsNothing(t *testing.T) {
	t.Parallel()
	members := testservers.EtcdCluster(t, 3)
	p := open(t, etcdlock.New(etcdtest.Client(t, members[0].Addr())))
	p.drop(p.take("k", long))
	members[1].Kill()
	members[2].Kill()
	const limit = 500 * time.Millisecond
	machine := hiccups.Start(t)
	start := time.Now()
	if _, err := p.Acquire(soon(t, limit), request("k", long)); err == nil || isHeld(err) {
		t.Errorf("a member without a majority said %v", err)
	}
	if took, most := time.Since(start), machine.Allow(limit+50*time.Millisecond+time.Second); took > most {
		t.Errorf("the request took %v, want at most %v on this machine", took, most)
	}
	if err := p.Ping(soon(t, limit)); err == nil {
		t.Error("a member without a majority answers a ping")
	}
	members[1].Restart()
	ctx := within(t)
	g, err := p.Acquire(ctx, request("k", long))
	for err != nil && ctx.Err() == nil {
		g, err = p.Acquire(ctx, request("k", long))
	}
	if err != nil {
		t.Fatalf("acquire with a majority again: %v", err)
	}
	p.drop(g)
}
