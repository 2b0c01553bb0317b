package redlock

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/redistest"
)

func TestTwoOfFiveDownAreNotMissed(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 5)
	a, b := join(t, f.direct), join(t, f.direct)
	held := a.take("held", time.Minute)
	f.servers[0].Kill()
	f.servers[3].Kill()
	if r := a.renew(held, time.Minute); r.Err != nil {
		t.Errorf("renewal: %v", r.Err)
	}
	if _, err := b.try("held", time.Minute); !isHeld(err) {
		t.Errorf("a request for a held key returned %v, not a *HeldError", err)
	}
	began := time.Now()
	var last int64
	for range 20 {
		g := a.take("k", time.Minute)
		if g.Token <= last {
			t.Fatalf("token %d was granted after token %d", g.Token, last)
		}
		w := b.queue("k", time.Minute)
		a.drop(g)
		next := <-w
		if next.err != nil || next.Token <= g.Token {
			t.Fatalf("hand-over: token %d after %d, %v", next.Token, g.Token, next.err)
		}
		last = next.Token
		b.drop(next.Grant)
	}
	if took := time.Since(began); took > 20*100*time.Millisecond+slack {
		t.Errorf("20 hand-overs took %v", took)
	}
	a.drop(held)
	if st, err := b.Inspect(within(t, 5*time.Second), "held"); err != nil || st.Held {
		t.Errorf("after the release, Inspect says %+v, %v", st, err)
	}
}

func TestCloseIsNotHeldUpByAMinority(t *testing.T) {
	t.Parallel()
	for name, hurt := range map[string]func(*redistest.Server){
		"down":    (*redistest.Server).Kill,
		"stalled": (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3)
			a := open(t, New(f.direct))
			a.drop(a.take("k", time.Minute))
			hurt(f.servers[0])
			for range 3 {
				a.drop(a.take("k", time.Minute))
			}
			began := time.Now()
			if err := a.Close(within(t, 10*time.Second)); err != nil {
				t.Errorf("closed with %v", err)
			}
			if took, most := time.Since(began), closeGrace+2*time.Second+slack; took > most {
				t.Errorf("closing took %v, want at most %v", took, most)
			}
			if name == "stalled" {
				f.servers[0].Cont()
			}
		})
	}
}

func TestWithoutAMajorityNothingIsGranted(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	f := startFleet(t, 5)
	d := New(f.direct)
	a, b := open(t, d), join(t, f.direct)
	held := a.take("held", ttl)
	for _, i := range []int{0, 2, 4} {
		f.servers[i].Kill()
	}
	for _, wait := range []bool{false, true} {
		r := request("k", ttl)
		r.Wait = wait
		if _, err := b.Acquire(within(t, 10*time.Second), r); !isNoMajority(err) {
			t.Errorf("acquire with 3 of 5 nodes down (wait %v) returned %v, not a *NoMajorityError", wait, err)
		}
	}
	if _, err := b.Inspect(within(t, 10*time.Second), "k"); !isNoMajority(err) {
		t.Errorf("inspect: %v", err)
	}
	if err := b.Ping(within(t, 10*time.Second)); !isNoMajority(err) {
		t.Errorf("ping: %v", err)
	}
	// The holder is not told that its lease is lost, which nobody knows. It ends at
	// its deadline.
	if r := a.renew(held, ttl); !isNoMajority(r.Err) || !r.Deadline.IsZero() {
		t.Errorf("renewal: %+v", r)
	}
	if err := a.release(held); !isNoMajority(err) {
		t.Errorf("release: %v", err)
	}
	down := 0
	for _, n := range d.States() {
		if n.Condition == driver.NodeDown {
			down++
		}
	}
	if down != 3 {
		t.Errorf("3 of 5 nodes are down, but the states are %+v", d.States())
	}
	// The release is finished when the nodes are back, though they have forgotten.
	for _, i := range []int{0, 2, 4} {
		f.servers[i].Restart()
	}
	eventually(t, 5*time.Second, "the key being free at every node", func() bool {
		for _, c := range f.direct {
			if o := c.HGet(t.Context(), hashPrefix+"held", "o").Val(); o != "" {
				return false
			}
		}
		return true
	})
	b.drop(b.take("held", ttl))
}

func TestOneNodeRestartedEmptyHarmsNoLeaseOfThree(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	d := New(f.direct)
	a, b := open(t, d), join(t, f.direct)
	g := a.take("k", time.Minute)
	// What the grant asks of the third is over, most often: where its answer is lost in the
	// restart it comes once more, and gives that node's vote to the lease again, which has a
	// majority without it.
	eventually(t, 5*time.Second, "the third node's vote", func() bool { return f.accepted(t, "k", g.Token) == 3 })
	f.servers[1].Restart()
	anew := 0
	for range 5 {
		if _, err := b.try("k", time.Minute); !isHeld(err) {
			t.Fatalf("a request for a held key, with one node restarted empty, returned %v, not a *HeldError", err)
		}
		before := f.votes(t, "k")
		if r := a.renew(g, time.Minute); r.Err != nil {
			t.Fatalf("renewal with one node restarted empty: %v", r.Err)
		}
		if f.votes(t, "k") > before {
			anew++
			f.direct[1].Del(t.Context(), hashPrefix+"k")
		}
	}
	if anew > 1 {
		t.Errorf("%d of 5 times the node that had forgotten the lease had it after a renewal; none must make it anew", anew)
	}
	other := a.take("other", time.Minute) // asks for votes, which shows the node's boot marker
	eventually(t, 5*time.Second, "the restarted node being shown", func() bool { return d.States()[1].Condition == driver.NodeRestartedEmpty })
	if st, err := a.Inspect(within(t, 10*time.Second), "k"); err != nil || !st.Held ||
		len(st.Nodes) != 3 || st.Nodes[0].Condition != driver.NodeUp || st.Nodes[1].Condition != driver.NodeRestartedEmpty {
		t.Errorf("Inspect says %+v, %v", st, err)
	}
	a.drop(other)
	a.drop(g)
	next := b.take("k", time.Minute)
	if next.Token <= g.Token {
		t.Errorf("token %d was granted after token %d", next.Token, g.Token)
	}
	b.drop(next)
}

// votes counts the nodes at which the key is somebody's.
func (f *fleet) votes(t testing.TB, key string) int {
	n := 0
	for _, c := range f.direct {
		if c.HGet(t.Context(), hashPrefix+key, "o").Val() != "" {
			n++
		}
	}
	return n
}

// accepted counts the nodes that have accepted the token.
func (f *fleet) accepted(t testing.TB, key string, token int64) int {
	n := 0
	for _, c := range f.direct {
		if got, _ := c.HGet(t.Context(), hashPrefix+key, "a").Int64(); got == token {
			n++
		}
	}
	return n
}

// TestTheDelayedRestartKeepsTwoFromHolding takes a lease with the votes of two of
// three nodes, and has one of them forget it.
func TestTheDelayedRestartKeepsTwoFromHolding(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	// reach lets the first holder reach the third node again.
	forget := func(t *testing.T, opts ...Option) (a, b *peer, g driver.Grant, reach func()) {
		f := startFleet(t, 3)
		a, b = join(t, f.proxied, opts...), join(t, f.direct, opts...)
		var first driver.Grant
		eventually(t, 2*ttl, "the first use of the nodes", func() (used bool) {
			var err error
			first, err = a.try("k", ttl)
			return err == nil
		})
		a.drop(first)
		eventually(t, ttl, "the end of that at every node", func() bool {
			n := 0
			for _, c := range f.direct {
				if strings.Contains(c.HGet(t.Context(), hashPrefix+"k", "z").Val(), string(first.Owner[:])) {
					n++
				}
			}
			return n == len(f.direct)
		})
		reach = f.proxies[2].BlackHole(redistest.ToServer)
		g = a.take("k", ttl)
		f.servers[1].Restart() // with --save '' it is empty
		return a, b, g, reach
	}
	t.Run("without", func(t *testing.T) {
		a, b, g, reach := forget(t)
		// This is what is promised, not what is wished for.
		next := b.take("k", ttl)
		if next.Token <= g.Token {
			t.Errorf("token %d was granted after token %d: the guard would accept the first holder", next.Token, g.Token)
		}
		reach()
		eventually(t, ttl, "the first holder's loss", func() bool {
			err := a.renew(g, ttl).Err // what it sends by connections that it has is lost
			if err == nil {
				t.Error("the lease was renewed, of which two of three nodes know nothing")
			}
			return err == nil || errors.Is(err, driver.ErrNotHeld)
		})
		b.drop(next)
	})
	t.Run("with", func(t *testing.T) {
		_, b, g, _ := forget(t, WithRestartDelay(ttl))
		w := make(chan result, 1)
		r := request("k", ttl)
		r.Wait = true
		go func() {
			for { // without a majority an acquisition ends, and is repeated
				g, err := b.Acquire(within(t, 4*ttl), r)
				if err != nil && time.Since(g.Deadline) > 0 && isNoMajority(err) {
					r.Owner = newOwner()
					continue
				}
				w <- result{g, err, time.Now()}
				return
			}
		}()
		next := <-w
		if next.err != nil {
			t.Fatalf("acquire after the delay: %v", next.err)
		}
		if next.at.Before(g.Deadline) {
			t.Errorf("the key was granted %v before the first holder's deadline", g.Deadline.Sub(next.at))
		}
		b.drop(next.Grant)
	})
}

func TestAStalledNodeDelaysNobody(t *testing.T) {
	t.Parallel()
	const bound, rounds = 300 * time.Millisecond, 20
	f := startFleet(t, 3)
	d := New(f.direct, WithNodeTimeout(bound))
	a, b := open(t, d), join(t, f.direct, WithNodeTimeout(bound))
	turn := func() time.Duration {
		began := time.Now()
		g := a.take("k", time.Minute)
		took := time.Since(began)
		a.drop(g)
		return took
	}
	var quick, slow time.Duration
	for range rounds {
		quick = max(quick, turn())
	}
	f.servers[1].Stop()
	defer f.servers[1].Cont()
	for range rounds {
		slow = max(slow, turn())
	}
	t.Logf("at most %v with all nodes, %v with one stalled", quick, slow)
	if slow > quick+bound+100*time.Millisecond {
		t.Errorf("with a stalled node an acquisition took %v, and %v without; the node's bound is %v", slow, quick, bound)
	}
	g := a.take("k", time.Minute)
	w := b.queue("k", time.Minute)
	a.drop(g)
	next := <-w
	if next.err != nil {
		t.Fatalf("hand-over with a stalled node: %v", next.err)
	}
	eventually(t, 10*time.Second, "the stalled node being shown", func() bool {
		b.renew(next.Grant, time.Minute)
		_, _ = a.try("other", minTTL) // whoever has it
		return d.States()[1].Condition == driver.NodeDown
	})
	b.drop(next.Grant)
	f.servers[1].Cont()
	eventually(t, 10*time.Second, "the node being up again", func() bool {
		turn()
		return d.States()[1].Condition == driver.NodeUp
	})
	// Everything that was given up meanwhile is ended there too.
	eventually(t, 10*time.Second, "the key being free at every node", func() bool { return f.votes(t, "k") == 0 })
}

func TestTheMinoritySideOfAPartitionLosesItsLeaseInTime(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	f := startFleet(t, 3)
	a, b := join(t, f.proxied), join(t, f.direct)
	g := a.take("k", ttl)
	w := b.queue("k", ttl)
	for _, p := range f.proxies[1:] {
		defer p.BlackHole(redistest.ToServer)()
		defer p.BlackHole(redistest.ToClient)()
	}
	deadline := g.Deadline
	for time.Now().Before(deadline) {
		switch r := a.renew(g, ttl); {
		case r.Err == nil:
			t.Fatal("a minority renewed a lease")
		case errors.Is(r.Err, driver.ErrNotHeld):
			t.Fatal("ErrNotHeld, though nobody knows")
		}
	}
	next := <-w
	if next.err != nil {
		t.Fatalf("the majority's side: %v", next.err)
	}
	if next.at.Before(deadline) {
		t.Errorf("the key was granted %v before the holder's deadline", deadline.Sub(next.at))
	}
	if late := next.at.Sub(deadline); late > time.Second+slack {
		t.Errorf("the key was granted %v after the holder's deadline", late)
	}
	if next.Token <= g.Token {
		t.Errorf("token %d was granted after token %d", next.Token, g.Token)
	}
	b.drop(next.Grant)
}

func TestTokensNeverGoBackWhileNodesAreKilledInTurn(t *testing.T) {
	t.Parallel()
	const acquisitions = 1000
	f := startFleet(t, 3)
	ps := []*peer{join(t, f.direct), join(t, f.direct)}
	var done atomic.Int64
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		var last int64
		for i := 0; done.Load() < acquisitions; i++ {
			p := ps[i%2]
			r := request("k", 2*time.Second)
			r.Wait = true
			g, err := p.Acquire(within(t, 10*time.Second), r)
			if err != nil {
				continue // a node came and another went
			}
			if g.Token <= last {
				failed <- errors.New("a token has gone back")
				return
			}
			last = g.Token
			done.Add(1)
			_ = p.release(g) // as above
		}
	}()
	kills := 0
	for i := 0; done.Load() < acquisitions; i++ {
		select {
		case err := <-failed:
			if err != nil {
				t.Fatal(err)
			}
		default:
		}
		s := f.servers[i%3]
		s.Kill()
		at := done.Load()
		eventually(t, time.Minute, "acquisitions with a node down", func() bool { return done.Load() >= min(at+20, acquisitions) })
		s.Restart() // empty
		kills++
		at = done.Load()
		eventually(t, time.Minute, "acquisitions with the node back", func() bool { return done.Load() >= min(at+20, acquisitions) })
	}
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d acquisitions, nodes killed and restarted empty %d times", done.Load(), kills)
}

func TestScriptsAreSentAgainToANodeThatHasForgottenThem(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	a := join(t, f.direct)
	for range 3 {
		for _, c := range f.direct {
			if err := c.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		g := a.take("k", time.Minute)
		if r := a.renew(g, time.Minute); r.Err != nil {
			t.Fatal(r.Err)
		}
		a.drop(g)
	}
}

func TestPingNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	const minimal = "resetkeys resetchannels -@all ~lr1:* &lr1:* +evalsha +eval +time +get +set +hmget +hget +hset +hdel " +
		"+zadd +zrem +zrange +zcard +zscore +pexpire +publish +subscribe +ping"
	var nodes []*redis.Client
	for i, s := range f.servers {
		if answer, err := s.Do("ACL", "SETUSER", "locks", "on", ">secret", minimal); err != nil || answer != "+OK" {
			t.Fatalf("ACL SETUSER: %s, %v", answer, err)
		}
		c := redis.NewClient(&redis.Options{Addr: f.servers[i].Addr(), Username: "locks", Password: "secret"})
		t.Cleanup(func() { _ = c.Close() })
		nodes = append(nodes, c)
	}
	a := join(t, nodes)
	if err := a.Ping(within(t, 5*time.Second)); err != nil {
		t.Fatalf("ping with the rights that are asked for: %v", err)
	}
	g := a.take("k", time.Minute)
	b := join(t, nodes)
	w := b.queue("k", time.Minute)
	a.drop(g)
	next := <-w
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := a.Oust(within(t, 5*time.Second), "k", next.Token); err != nil {
		t.Fatal(err)
	}
	for _, s := range f.servers[:2] {
		if answer, err := s.Do("ACL", "SETUSER", "locks", "-zadd"); err != nil || answer != "+OK" {
			t.Fatalf("ACL SETUSER: %s, %v", answer, err)
		}
	}
	err := a.Ping(within(t, 5*time.Second))
	if refused := new(driver.PermanentError); !errors.As(err, &refused) {
		t.Errorf("ping without the right to ZADD at two of three nodes: %v", err)
	}
	t.Log(err)
}
