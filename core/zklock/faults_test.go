package zklock_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/zklock"
	"github.com/lockaround/lockaround/core/zklock/internal/zktest"
)

// pair is a process behind a proxy and others that are not.
func pair(t *testing.T, opts ...zklock.Option) (s *zktest.Server, proxy *zktest.Proxy, behind *process, direct driver.Driver) {
	t.Helper()
	s = zktest.Start(t)
	proxy = zktest.NewProxy(t, s.Addr())
	direct = zklock.New([]string{s.Addr()}, long)
	return s, proxy, open(t, zklock.New([]string{proxy.Addr()}, append([]zklock.Option{long}, opts...)...)), direct
}

// TestExpiredSessionLosesItsLease cuts a process off for longer than its session
// lasts: its lease is over for itself before it is granted to another, and it is told
// when it is back, and may ask anew.
func TestExpiredSessionLosesItsLease(t *testing.T) {
	_, proxy, a, d := pair(t, zklock.WithSessionTimeout(2*time.Second))
	b := open(t, d)
	g := a.take("k", time.Minute)
	if left := time.Until(g.Deadline); left > 800*time.Millisecond {
		t.Errorf("with a session of 2 s a lease is believed in for %v", left)
	}
	w := b.queue("k", time.Minute)
	lost := a.told(a.lost, g.ID)
	restore := proxy.BlackHole()
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
	if err := a.Renew(t.Context(), []driver.Renewal{{ID: g.ID, Ref: g.Ref, Token: g.Token, TTL: time.Minute}})[0].Err; err == nil {
		t.Error("the lease of an expired session was renewed")
	}
	await(t, "Sink.Lost", lost)
	if err := a.Release(t.Context(), []driver.Ending{ending(g)})[0]; !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("release of a lease whose session has expired: %v", err)
	}
	again := a.queue("k", time.Minute)
	b.drop(next.Grant)
	a.drop(granted(t, "the grant to a new session of the same process", again))
}

// TestWaiterOfAnExpiredSessionLosesItsPlace cuts a waiting process off.
func TestWaiterOfAnExpiredSessionLosesItsPlace(t *testing.T) {
	_, proxy, a, d := pair(t, zklock.WithSessionTimeout(time.Second))
	b := open(t, d)
	g := b.take("k", time.Minute)
	w := a.queue("k", time.Minute)
	restore := proxy.BlackHole()
	eventually(t, "the place of a session that has expired ending", func() bool { return b.state("k").Waiting == 0 })
	restore()
	if o := await(t, "the end of the wait", w); o.err == nil {
		t.Error("a waiter whose session had expired was granted the key")
	}
	b.drop(g)
	a.drop(a.take("k", time.Minute))
}

// TestCrashedHolderIsFollowedAfterItsTTL cuts a process off whose session lasts for
// much longer than its lease.
func TestCrashedHolderIsFollowedAfterItsTTL(t *testing.T) {
	const ttl = 2 * time.Second
	_, proxy, a, d := pair(t)
	b := open(t, d)
	g := a.take("k", ttl)
	w := b.queue("k", time.Minute)
	defer proxy.BlackHole()()
	next := await(t, "the grant after a crash", w)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if late := next.at.Sub(g.Deadline); late < 0 || late > ttl {
		t.Errorf("the next one was granted the key %v after the holder's deadline", late)
	}
	b.drop(next.Grant)
}

// TestCrashedSharersAreFollowedAfterOneTTL has several holders that end together.
func TestCrashedSharersAreFollowedAfterOneTTL(t *testing.T) {
	const ttl, n = 2 * time.Second, 5
	_, proxy, a, d := pair(t)
	b := open(t, d)
	var last driver.Grant
	for range n {
		r := request("k", ttl)
		r.Mode = driver.Shared
		var err error
		if last, err = a.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	w := b.queue("k", time.Minute)
	defer proxy.BlackHole()()
	next := await(t, "the grant after a crash", w)
	if next.err != nil {
		t.Fatal(next.err)
	}
	if late := next.at.Sub(last.Deadline); late < 0 || late > ttl+2*time.Second {
		t.Errorf("a writer was granted the key %v after the last of %d readers' deadlines", late, n)
	}
	b.drop(next.Grant)
}

// TestLostReplyOfACreateLeavesNoOrphan loses the reply to what makes a node, many
// times.
func TestLostReplyOfACreateLeavesNoOrphan(t *testing.T) {
	_, proxy, a, d := pair(t)
	b := open(t, d)
	a.drop(a.take("k", time.Minute))
	for i := range 10 {
		dropped := proxy.DropReply(zktest.Create)
		g, err := a.Acquire(t.Context(), request("k", time.Minute))
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
		b.drop(b.take("k", time.Minute))
	}
}

// TestConnectionsCutWhileWaitingLoseNothing cuts the connection of a waiter, again and
// again; its place stays, and it is granted the key.
func TestConnectionsCutWhileWaitingLoseNothing(t *testing.T) {
	_, proxy, a, d := pair(t)
	b, c := open(t, d), open(t, d)
	g := b.take("k", time.Minute)
	first := a.queue("k", time.Minute)
	second := c.queue("k", time.Minute)
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
	const n = 20
	_, proxy, a, d := pair(t)
	b := open(t, d)
	g := b.take("k", time.Minute)
	var queue []<-chan outcome
	for range n {
		queue = append(queue, a.queue("k", time.Minute))
	}
	_, before := proxy.Counts()
	b.drop(g)
	g = granted(t, "the grant to the first waiter", queue[0])
	_, after := proxy.Counts()
	// One for the release, and one for the next in line when the first takes the key;
	// beside them waiters that give a sign of life at this moment.
	if after-before > 4 {
		t.Errorf("a hand-over among %d waiters took %d events", n, after-before)
	}
	for _, w := range queue[1:] {
		a.drop(g)
		g = granted(t, "the grant to the next waiter", w)
	}
	a.drop(g)
}

// TestEmptyKeysGoAway takes many keys, and finds the root empty afterwards.
func TestEmptyKeysGoAway(t *testing.T) {
	s, _, a, _ := pair(t)
	for i := range 20 {
		a.drop(a.take(fmt.Sprintf("key %d", i), time.Minute))
	}
	conn := raw(t, s)
	eventually(t, "the keys' nodes going away", func() bool {
		names, _, err := conn.Children(zklock.DefaultRoot)
		if err != nil {
			t.Fatal(err)
		}
		return len(names) == 0
	})
	a.drop(a.take("key 0", time.Minute))
}

// TestKeysGoAndComeUnderLoad has the servers delete a key's node while others ask for
// it: nobody fails.
func TestKeysGoAndComeUnderLoad(t *testing.T) {
	_, _, a, d := pair(t)
	b := open(t, d)
	var running sync.WaitGroup
	for _, p := range []*process{a, b} {
		running.Go(func() {
			end := time.Now().Add(3 * time.Second)
			for i := 0; time.Now().Before(end); i++ {
				r := request(fmt.Sprintf("key %d", i%50), time.Minute)
				r.Wait = true
				g, err := p.Acquire(t.Context(), r)
				if err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if err := p.Release(t.Context(), []driver.Ending{ending(g)})[0]; err != nil {
					t.Errorf("release: %v", err)
					return
				}
			}
		})
	}
	running.Wait()
}

// TestRefusedRightsAreAPermanentError asks with the rights of nobody.
func TestRefusedRightsAreAPermanentError(t *testing.T) {
	s := zktest.Start(t)
	owner := open(t, zklock.New([]string{s.Addr()}, zklock.WithAuth("digest", []byte("locks:secret")), zklock.WithACL(digest()...)))
	if err := owner.Ping(t.Context()); err != nil {
		t.Fatalf("ping with all rights: %v", err)
	}
	g := owner.take("k", time.Minute)
	other := open(t, zklock.New([]string{s.Addr()}))
	var permanent *driver.PermanentError
	if err := other.Ping(t.Context()); !errors.As(err, &permanent) {
		t.Errorf("ping without rights: %v, want a PermanentError", err)
	}
	if _, err := other.Acquire(t.Context(), request("k", time.Minute)); !errors.As(err, &permanent) {
		t.Errorf("acquire without rights: %v, want a PermanentError", err)
	}
	owner.drop(g)
}
