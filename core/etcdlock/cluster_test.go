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
)

// leader returns the member that leads.
func leader(t *testing.T, members []*etcdtest.Server) *etcdtest.Server {
	t.Helper()
	ctx := within(t, 30*time.Second)
	for ctx.Err() == nil {
		for _, m := range members {
			c := etcdtest.Client(t, m.Addr())
			st, err := c.Status(ctx, m.Addr())
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
	const processes, callers, rounds = 3, 3, 12
	members := etcdtest.StartCluster(t, 3)
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	ctx := within(t, 90*time.Second)
	var (
		mu      sync.Mutex
		holds   []hold
		running sync.WaitGroup
		half    = make(chan struct{})
		once    sync.Once
		failure = make(chan error, processes*callers)
	)
	for range processes {
		p := open(t, etcdlock.New(etcdtest.Client(t, addrs...)), 3*time.Second)
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
	receive(t, 60*time.Second, half, "a third of the load")
	dead := leader(t, members)
	dead.Kill()
	done := make(chan struct{})
	go func() { running.Wait(); close(done) }()
	receive(t, 90*time.Second, done, "the load with the leader killed")
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
		r := request(key, 5*time.Second)
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
				t.Errorf("two callers held the key at once, with tokens %d and %d", a.token, b.token)
			}
			if a.from.Before(b.from) != (a.token < b.token) {
				t.Errorf("tokens %d and %d are not in the order of their holds", a.token, b.token)
			}
		}
	}
}

func TestLeaseSurvivesTheLeader(t *testing.T) {
	members := etcdtest.StartCluster(t, 3)
	var addrs []string
	for _, m := range members {
		addrs = append(addrs, m.Addr())
	}
	c := etcdtest.Client(t, addrs...)
	p, q := open(t, etcdlock.New(c), 3*time.Second), open(t, etcdlock.New(etcdtest.Client(t, addrs...)), 3*time.Second)
	g := p.take("k", 10*time.Second)
	w := q.queue(within(t, 60*time.Second), "k", 10*time.Second)
	leader(t, members).Kill()
	renewed := false
	for !renewed && driver.Remaining(g.Deadline, time.Now()) > 0 {
		out := p.renew(g, 10*time.Second)
		if errors.Is(out.Err, driver.ErrNotHeld) {
			t.Fatal("the lease was lost with the leader")
		}
		renewed = out.Err == nil
	}
	if !renewed {
		t.Fatal("no renewal succeeded before the deadline")
	}
	p.drop(g)
	next := w.granted(t, 20*time.Second)
	if next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
	q.drop(next)
}

func TestMinorityGrantsNothing(t *testing.T) {
	members := etcdtest.StartCluster(t, 3)
	p := open(t, etcdlock.New(etcdtest.Client(t, members[0].Addr())), time.Second)
	p.drop(p.take("k", long))
	members[1].Kill()
	members[2].Kill()
	start := time.Now()
	if _, err := p.Acquire(within(t, 500*time.Millisecond), request("k", long)); err == nil || isHeld(err) {
		t.Errorf("a member without a majority said %v", err)
	}
	if took := time.Since(start); took > 500*time.Millisecond+50*time.Millisecond+time.Second {
		t.Errorf("the request took %v", took)
	}
	if err := p.Ping(within(t, 500*time.Millisecond)); err == nil {
		t.Error("a member without a majority answers a ping")
	}
	members[1].Restart()
	g, err := p.Acquire(within(t, 30*time.Second), request("k", long))
	for err != nil && time.Since(start) < 30*time.Second {
		g, err = p.Acquire(within(t, 30*time.Second), request("k", long))
	}
	if err != nil {
		t.Fatalf("acquire with a majority again: %v", err)
	}
	p.drop(g)
}
