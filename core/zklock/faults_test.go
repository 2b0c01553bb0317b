package zklock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/testkit/zktest"
	"github.com/lockaround/lockaround/core/testservers"
	"github.com/lockaround/lockaround/core/zklock"
)

// slow is how much longer than it should a server may take that shares its machine with
// others.
const slow = 5 * time.Second

// pair is a process behind a proxy and others that are not.
func pair(t *testing.T, opts ...zklock.Option) (s *testservers.Server, proxy *zktest.Proxy, behind *process, direct driver.Driver) {
	t.Helper()
	s = zktest.Start(t, warm)
	proxy = zktest.NewProxy(t, s.Addr())
	direct = zklock.New([]string{s.Addr()}, long)
	return s, proxy, open(t, zklock.New([]string{proxy.Addr()}, append([]zklock.Option{long}, opts...)...)), direct
}

// cutOff has a process take the key "k", and another wait behind it for a short TTL or
// session to end. Then the first one is heard no more, until restore is called. On a machine
// that let the lease end before nobody has crashed, and it begins anew.
func cutOff(t *testing.T, proxy *zktest.Proxy, a, b *process, take func() driver.Grant) (g driver.Grant, next <-chan outcome, restore func()) {
	t.Helper()
	for {
		g = take()
		next, waits := b.enqueue("k", hold)
		hear := proxy.BlackHole()
		restore = func() {
			hear()
			proxy.Cut() // what was begun meanwhile will never be answered
		}
		if waits && time.Now().Before(g.Deadline) {
			t.Cleanup(restore) // before the sessions are closed
			return g, next, restore
		}
		restore()
		b.drop(granted(t, "the grant after a lease that has ended by itself", next))
	}
}

// TestExpiredSessionLosesItsLease cuts a process off for longer than its session
// lasts: its lease is over for itself before it is granted to another, and it is told
// when it is back, and may ask anew.
func TestExpiredSessionLosesItsLease(t *testing.T) {
	t.Parallel()
	const session = 6 * time.Second
	_, proxy, a, d := pair(t, zklock.WithSessionTimeout(session))
	b := open(t, d)
	g, w, restore := cutOff(t, proxy, a, b, func() driver.Grant {
		g := a.obtain("k", hold)
		if left := time.Until(g.Deadline); left > session*2/5 {
			t.Errorf("with a session of %v a lease is believed in for %v", session, left)
		}
		return g
	})
	lost := a.told(a.lost, g.ID)
	next := await(t, "the grant after the session had expired", w)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if next.at.Before(g.Deadline) {
		t.Errorf("granted to another %v before the holder's deadline", g.Deadline.Sub(next.at))
	}
	if next.Token <= g.Token {
		t.Errorf("token %d follows %d", next.Token, g.Token)
	}
	restore()
	if err := a.Renew(t.Context(), []driver.Renewal{{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: hold}})[0].Err; err == nil {
		t.Error("the lease of an expired session was renewed")
	}
	await(t, "Sink.Lost", lost)
	if err := a.Release(t.Context(), []driver.Ending{ending(g)})[0]; !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release of a lease whose session has expired: %v", err)
	}
	again, _ := a.enqueue("k", hold)
	b.drop(next.Grant)
	mine := await(t, "the grant to a new session of the same process", again)
	if errors.Is(mine.err, driver.ErrPlaceLost) { // as that one has expired too
		mine.Grant, mine.err = a.obtain("k", hold), nil
	}
	if mine.err != nil {
		t.Fatalf("acquire by a new session of the same process: %v", mine.err)
	}
	a.leave(mine.Grant)
}

// TestWaiterOfAnExpiredSessionLosesItsPlace cuts a waiting process off.
func TestWaiterOfAnExpiredSessionLosesItsPlace(t *testing.T) {
	t.Parallel()
	_, proxy, a, d := pair(t, zklock.WithSessionTimeout(4*time.Second))
	b := open(t, d)
	g := b.take("k", hold)
	w, waits := a.enqueue("k", hold)
	for !waits { // its session has expired before it had a place
		if o := <-w; o.err == nil {
			t.Fatal("a key that is held was granted to another")
		}
		w, waits = a.enqueue("k", hold)
	}
	hear := proxy.BlackHole()
	restore := func() { hear(); proxy.Cut() }
	t.Cleanup(restore)
	eventually(t, "the place of a session that has expired ending", func() bool { return b.state("k").Waiting == 0 })
	restore()
	if o := await(t, "the end of the wait", w); o.err == nil {
		t.Error("a waiter whose session had expired was granted the key")
	}
	b.drop(g)
	a.leave(a.obtain("k", hold))
}

// TestHandshakeThatIsNotAnsweredIsGivenUp has a process begin a connection while all is
// lost that it sends and would hear, and never be answered on it.
func TestHandshakeThatIsNotAnsweredIsGivenUp(t *testing.T) {
	t.Parallel()
	proxy := zktest.NewProxy(t, zktest.Start(t, warm).Addr())
	p := openWith(t, zklock.New([]string{proxy.Addr()}, long), 2*time.Second)
	answered := func() bool { return p.Ping(t.Context()) == nil }
	eventually(t, "an answer", answered)
	restore := proxy.BlackHole()
	for range 2 { // the first has the connection replaced
		if answered() {
			t.Error("somebody has answered who heard nothing")
		}
	}
	restore()
	eventually(t, "an answer on another connection", answered)
}

// TestHungServerIsLeftForAnotherHoweverShortTheCallersWait hangs a server, whose callers never wait
// for as long as the store time-out.
func TestHungServerIsLeftForAnotherHoweverShortTheCallersWait(t *testing.T) {
	t.Parallel()
	const timeout = 4 * time.Second
	s := zktest.Start(t, warm)
	proxies := []*zktest.Proxy{zktest.NewProxy(t, s.Addr()), zktest.NewProxy(t, s.Addr())}
	p := openWith(t, zklock.New([]string{proxies[0].Addr(), proxies[1].Addr()}, long), timeout)
	answered := func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), timeout/4)
		defer cancel()
		return p.Ping(ctx) == nil
	}
	eventually(t, "an answer", answered)
	hung := proxies[0]
	before := hung.Count(zktest.Requests)
	eventually(t, "another answer", answered)
	if hung.Count(zktest.Requests) == before {
		hung = proxies[1]
	}
	t.Cleanup(hung.BlackHole())
	eventually(t, "an answer of the other server", answered)
}

// TestCrashedHolderIsFollowedAfterItsTTL cuts a process off whose session lasts for
// much longer than its lease.
func TestCrashedHolderIsFollowedAfterItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	_, proxy, a, d := pair(t)
	b := open(t, d)
	machine := hiccups.Start(t)
	g, w, _ := cutOff(t, proxy, a, b, func() driver.Grant { return a.take("k", ttl) })
	next := await(t, "the grant after a crash", w)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if late, limit := next.at.Sub(g.Deadline), machine.Allow(ttl+slow); late < 0 || late > limit {
		t.Errorf("the next one was granted the key %v after the holder's deadline, want at most %v, or %v on this machine", late, ttl, limit)
	}
	b.drop(next.Grant)
}

// TestLeaseThatEndedDuringAnOutageIsGoneAfterIt cuts a process off until its lease is over, and for
// longer than its store time-outs. Its session at the servers lasts.
func TestLeaseThatEndedDuringAnOutageIsGoneAfterIt(t *testing.T) {
	t.Parallel()
	const ttl, timeout = time.Second, time.Second
	s := zktest.Start(t, warm)
	proxy := zktest.NewProxy(t, s.Addr())
	a := openWith(t, zklock.New([]string{proxy.Addr()}, long), timeout)
	b := open(t, zklock.New([]string{s.Addr()}, long))
	a.obtain("k", ttl)
	hear := proxy.BlackHole()
	restore := func() {
		hear()
		proxy.Cut()
	}
	t.Cleanup(restore)
	time.Sleep(2*ttl + 4*timeout)
	if _, err := b.Acquire(t.Context(), request("k", hold)); err == nil {
		t.Fatal("the process's session has ended, so that nothing is tested")
	}
	restore()
	eventually(t, "the end of a lease whose process can reach the servers again", func() bool {
		g, err := b.Acquire(t.Context(), request("k", hold))
		if err == nil {
			b.drop(g)
		}
		return err == nil
	})
}

// TestCrashedSharersAreFollowedAfterOneTTL has several holders that end together.
func TestCrashedSharersAreFollowedAfterOneTTL(t *testing.T) {
	t.Parallel()
	const ttl, n = 2 * time.Second, 5
	_, proxy, a, d := pair(t)
	b := open(t, d)
	machine := hiccups.Start(t)
	last, w, _ := cutOff(t, proxy, a, b, func() (last driver.Grant) {
		for range n {
			r := request("k", ttl)
			r.Mode = driver.Shared
			var err error
			if last, err = a.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		return last
	})
	next := await(t, "the grant after a crash", w)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if late, limit := next.at.Sub(last.Deadline), machine.Allow(ttl+2*time.Second+slow); late < 0 || late > limit {
		t.Errorf("a writer was granted the key %v after the last of %d readers' deadlines, want at most %v, or %v on this machine", late, n, ttl+2*time.Second, limit)
	}
	b.drop(next.Grant)
}

// TestLostReplyOfACreateLeavesNoOrphan loses the reply to what makes a node, many
// times: to one that takes the key in the same step, and to one that does not.
func TestLostReplyOfACreateLeavesNoOrphan(t *testing.T) {
	t.Parallel()
	_, proxy, a, d := pair(t)
	b := open(t, d)
	a.drop(a.take("k", hold))
	for i := range 10 {
		r := request("k", hold)
		r.Mode = []driver.Mode{driver.Exclusive, driver.Shared}[i%2]
		dropped := proxy.DropReply(zktest.AnyOf(map[driver.Mode]zktest.Op{driver.Exclusive: zktest.Multi, driver.Shared: zktest.Create}[r.Mode]))
		g, err := a.Acquire(t.Context(), r)
		if !dropped() {
			t.Fatal("no reply was lost")
		}
		if held := new(driver.HeldError); errors.As(err, &held) {
			t.Fatalf("round %d: the key was found held by the request itself", i)
		}
		if err == nil {
			a.drop(g)
		}
		eventually(t, "the key being free", func() bool { st := b.state("k"); return !st.Held && st.Waiting == 0 })
		b.drop(b.take("k", hold))
	}
}

// TestConnectionsCutWhileWaitingLoseNothing cuts the connection of a waiter, again and
// again; its place stays, and it is granted the key.
func TestConnectionsCutWhileWaitingLoseNothing(t *testing.T) {
	t.Parallel()
	_, proxy, a, d := pair(t)
	b, c := open(t, d), open(t, d)
	g := b.take("k", hold)
	first := a.queue("k", hold)
	second := c.queue("k", hold)
	for range 5 {
		proxy.Cut()
		if err := a.Ping(t.Context()); err != nil {
			t.Fatalf("ping after a cut: %v", err)
		}
	}
	if n := b.state("k").Waiting; n != 2 {
		t.Errorf("%d wait, want 2", n)
	}
	b.drop(g)
	g = granted(t, "the grant to the waiter whose connection was cut", first)
	select {
	case <-second:
		t.Error("the second waiter has overtaken the first")
	default:
	}
	a.drop(g)
	c.drop(granted(t, "the grant to the second", second))
}

// TestReleaseWakesOneWaiterOnly counts the events that a hand-over among many costs.
func TestReleaseWakesOneWaiterOnly(t *testing.T) {
	t.Parallel()
	const n = 20
	_, proxy, a, d := pair(t)
	b := open(t, d)
	g := b.take("k", hold)
	came := time.Now()
	queue := a.queues(n, "k")
	began := time.Now()
	before := proxy.Count(zktest.Events)
	b.drop(g)
	g = granted(t, "the grant to the first waiter", queue[0])
	after := proxy.Count(zktest.Events)
	// One for the release, and one for the next in line when the first takes the key;
	// beside them refreshes of waiters.
	if most := 4 + signs(n, refreshInterval, came, began); after-before > most {
		t.Errorf("a hand-over among %d waiters took %d events, want at most %d", n, after-before, most)
	}
	for _, w := range queue[1:] {
		a.drop(g)
		g = granted(t, "the grant to the next waiter", w)
	}
	a.drop(g)
}

// queues has n waiters queue for a key, one after the other.
func (p *process) queues(n int, key string) (queue []<-chan outcome) {
	p.t.Helper()
	for range n {
		queue = append(queue, p.queue(key, hold))
	}
	return queue
}

const (
	pollInterval    = 700 * time.Millisecond // between two polls of a waiter
	refreshInterval = 10 * time.Second / 3   // between two refreshes of a waiter with a long TTL
)

// signs returns how often n waiters may have polled or refreshed since began, if each does so
// every so often since it came.
func signs(n int, every time.Duration, came, began time.Time) int {
	return n * min(int(time.Since(came)/every), 1+int(time.Since(began)/every))
}
