package redlock

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/counts"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/redistest"
)

func TestTwoOfFiveDownAreNotMissed(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 5)
	a, b := join(t, f.direct), join(t, f.direct)
	held := a.take("held", ttl)
	f.servers[0].Kill()
	f.servers[3].Kill()
	if r := a.renew(held, ttl); r.Err != nil {
		t.Errorf("renewal: %v", r.Err)
	}
	if _, err := b.try("held", ttl); !isHeld(err) {
		t.Errorf("a request for a held key returned %v, not a *HeldError", err)
	}
	machine, began := hiccups.Start(t), time.Now()
	var last int64
	for range 20 {
		g := a.take("k", ttl)
		if g.Token <= last {
			t.Fatalf("token %d was granted after token %d", g.Token, last)
		}
		w := b.queue("k", ttl)
		a.drop(g)
		next := <-w
		if next.err != nil || next.Token <= g.Token {
			t.Fatalf("hand-over: token %d after %d, %v", next.Token, g.Token, next.err)
		}
		last = next.Token
		b.drop(next.Grant)
	}
	if took, most := time.Since(began), 20*machine.Allow(100*time.Millisecond)+slack; took > most {
		t.Errorf("20 hand-overs took %v, want at most %v", took, most)
	}
	a.drop(held)
	if st, err := b.Inspect(within(t, patience), "held"); err != nil || st.Held {
		t.Errorf("after the release, Inspect says %+v, %v", st, err)
	}
}

// In TestCloseIsNotHeldUpByAMinority the client library gives up an attempt when its time is
// up, and not before. Who waited for the end of all leases would take twice as long.
func TestCloseIsNotHeldUpByAMinority(t *testing.T) {
	t.Parallel()
	const timeout = 5 * time.Second
	for name, hurt := range map[string]func(*redistest.Server){
		"down":    (*redistest.Server).Kill,
		"stalled": (*redistest.Server).Stop,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := startFleet(t, 3)
			a := openWithin(t, New(f.direct), timeout)
			a.drop(a.take("k", ttl))
			hurt(f.servers[0])
			for range 3 {
				a.drop(a.take("k", ttl))
			}
			machine, began := hiccups.Start(t), time.Now()
			if err := a.Close(within(t, patience)); err != nil {
				t.Errorf("closed with %v", err)
			}
			if took, most := time.Since(began), machine.Allow(closeGrace+timeout+slack); took > most {
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
	const timeout = 2 * time.Second // after which it is told
	f := startFleet(t, 5)
	d := New(f.direct)
	a, b := open(t, d), openWithin(t, New(f.direct), timeout)
	held := a.take("held", ttl)
	killed := []int{0, 2, 4}
	for _, i := range killed {
		f.servers[i].Kill()
	}
	for _, wait := range []bool{false, true} {
		r := request("k", ttl)
		r.Wait = wait
		if _, err := b.Acquire(within(t, patience), r); !isNoMajority(err) {
			t.Errorf("acquire with 3 of 5 nodes down (wait %v) returned %v, not a *NoMajorityError", wait, err)
		}
	}
	if _, err := b.Inspect(within(t, patience), "k"); !isNoMajority(err) {
		t.Errorf("inspect: %v", err)
	}
	if err := b.Ping(within(t, patience)); !isNoMajority(err) {
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
	eventually(t, "the nodes that are down being shown, and no others", func() bool {
		for i, n := range d.States() {
			if (n.Condition == driver.NodeDown) != slices.Contains(killed, i) {
				_ = a.Ping(within(t, patience)) // asks all
				return false
			}
		}
		return true
	})
	// The release is finished when the nodes are back, though they have forgotten.
	for _, i := range killed {
		f.servers[i].Restart()
	}
	eventually(t, "the key being free at every node", func() bool { return f.votes(t, "held") == 0 })
	b.drop(b.take("held", ttl))
}

func TestOneNodeRestartedEmptyHarmsNoLeaseOfThree(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	d := New(f.direct)
	a, b := open(t, d), join(t, f.direct)
	g := a.take("k", ttl)
	// What the grant asks of the third is over, most often: where its answer is lost in the
	// restart it comes once more, and gives that node's vote to the lease again, which has a
	// majority without it.
	eventually(t, "the third node's vote", func() bool { return f.accepted(t, "k", g.Token) == 3 })
	f.servers[1].Restart()
	anew := 0
	for range 5 {
		if _, err := b.try("k", ttl); !isHeld(err) {
			t.Fatalf("a request for a held key, with one node restarted empty, returned %v, not a *HeldError", err)
		}
		if r := a.renew(g, ttl); r.Err != nil {
			t.Fatalf("renewal with one node restarted empty: %v", r.Err)
		}
		if f.holder(t, 1, "k") == string(g.Owner[:]) {
			anew++
			f.direct[1].Del(t.Context(), hashPrefix+"k")
		}
	}
	if anew > 1 {
		t.Errorf("%d of 5 times the node that had forgotten the lease had it after a renewal; none must make it anew", anew)
	}
	other := a.take("other", ttl) // asks for votes, which shows the node's boot marker
	eventually(t, "the restarted node being shown", func() bool { return d.States()[1].Condition == driver.NodeRestartedEmpty })
	if st, err := a.Inspect(within(t, patience), "k"); err != nil || !st.Held ||
		len(st.Nodes) != 3 || st.Nodes[0].Condition != driver.NodeUp || st.Nodes[1].Condition != driver.NodeRestartedEmpty {
		t.Errorf("Inspect says %+v, %v", st, err)
	}
	a.drop(other)
	a.drop(g)
	next := b.take("k", ttl)
	if next.Token <= g.Token {
		t.Errorf("token %d was granted after token %d", next.Token, g.Token)
	}
	b.drop(next)
}

// holder is whose the key is at a node, which may not be known.
func (f *fleet) holder(t testing.TB, node int, key string) string {
	o, err := f.direct[node].HGet(t.Context(), hashPrefix+key, "o").Result()
	if err != nil && err != redis.Nil {
		return "unknown"
	}
	return o
}

// votes counts the nodes at which the key is somebody's.
func (f *fleet) votes(t testing.TB, key string) int {
	n := 0
	for i := range f.direct {
		if f.holder(t, i, key) != "" {
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
	// reach lets the first holder reach the third node again.
	forget := func(t *testing.T, lease time.Duration, opts ...Option) (a, b *peer, g driver.Grant, reach func()) {
		f := startFleet(t, 3)
		opts = append(opts, WithNodeTimeout(time.Second)) // what is sent into the black hole
		a, b = join(t, f.proxied, opts...), join(t, f.direct, opts...)
		try := func(lease time.Duration) (g driver.Grant) {
			eventually(t, "a grant", func() bool {
				var err error
				g, err = a.try("k", lease)
				return err == nil
			})
			return g
		}
		first := try(ttl)
		a.drop(first)
		eventually(t, "the end of that at every node", func() bool {
			n := 0
			for _, c := range f.direct {
				if strings.Contains(c.HGet(t.Context(), hashPrefix+"k", "z").Val(), string(first.Owner[:])) {
					n++
				}
			}
			return n == len(f.direct)
		})
		reach = f.proxies[2].BlackHole(redistest.ToServer)
		g = try(lease)
		f.servers[1].Restart() // with --save '' it is empty
		return a, b, g, reach
	}
	t.Run("without", func(t *testing.T) {
		a, b, g, reach := forget(t, ttl)
		// The package promises this, no more.
		next := b.take("k", ttl)
		if next.Token <= g.Token {
			t.Errorf("token %d was granted after token %d: the guard would accept the first holder", next.Token, g.Token)
		}
		reach()
		eventually(t, "the first holder's loss", func() bool {
			err := a.renew(g, ttl).Err // what it sends by connections that it has is lost
			if err == nil {
				t.Error("the lease was renewed, of which two of three nodes know nothing")
			}
			return err == nil || errors.Is(err, driver.ErrNotHeld)
		})
		b.drop(next)
	})
	t.Run("with", func(t *testing.T) {
		const lease = time.Second // the largest that ends by running out
		_, b, g, _ := forget(t, lease, WithRestartDelay(lease))
		var next result
		eventually(t, "a grant after the delay", func() bool { // without a majority an acquisition ends, and is repeated
			r := request("k", ttl)
			r.Wait = true
			g, err := b.Acquire(within(t, patience), r)
			next = result{g, err, time.Now()}
			return err == nil
		})
		if next.at.Before(g.Deadline) {
			t.Errorf("the key was granted %v before the first holder's deadline", g.Deadline.Sub(next.at))
		}
		b.drop(next.Grant)
	})
}

// TestAStalledNodeDelaysNobody gives a node so much time that whoever waited for one that is
// stopped would be seen, and a hasty session little, so that it notices that it is.
func TestAStalledNodeDelaysNobody(t *testing.T) {
	t.Parallel()
	const rounds = 20
	f := startFleet(t, 3)
	d := New(f.direct, WithNodeTimeout(300*time.Millisecond))
	hasty, a, b := open(t, d), join(t, f.direct), join(t, f.direct)
	machine := hiccups.Start(t)
	hurried := func(what string, do func()) (took time.Duration) {
		t.Helper()
		began := time.Now()
		do()
		took = time.Since(began)
		if most := machine.Allow(storeTimeout / 4); took > most {
			t.Errorf("%s with a stalled node took %v, want at most %v; the node has %v to answer", what, took, most, storeTimeout)
		}
		return took
	}
	turn := func() { a.drop(a.take("k", ttl)) }
	hastyTurn := func() {
		eventually(t, "a turn", func() bool { // the machine may sleep for longer than the node has
			g, err := hasty.try("k", ttl)
			return err == nil && hasty.release(g) == nil
		})
	}
	quick, slow := time.Hour, time.Hour // at least
	for range rounds {
		hastyTurn()
		quick = min(quick, hurried("a turn", turn))
	}
	f.servers[1].Stop()
	defer f.servers[1].Cont()
	for range rounds {
		hastyTurn()
		slow = min(slow, hurried("a turn", turn))
	}
	t.Logf("at least %v with all nodes, %v with one stalled", quick, slow)
	if most := machine.Allow(quick + 100*time.Millisecond); slow > most {
		t.Errorf("with a stalled node a turn took %v at least, and %v without; want at most %v", slow, quick, most)
	}
	g := a.take("k", ttl)
	w := b.queue("k", ttl)
	hurried("a hand-over", func() {
		a.drop(g)
		next := <-w
		if next.err != nil {
			t.Fatalf("hand-over with a stalled node: %v", next.err)
		}
		b.drop(next.Grant)
	})
	eventually(t, "the stalled node being shown", func() bool {
		hastyTurn()
		return d.States()[1].Condition == driver.NodeDown
	})
	f.servers[1].Cont()
	eventually(t, "the node being up again", func() bool {
		hastyTurn()
		return d.States()[1].Condition == driver.NodeUp
	})
	// Everything that was given up meanwhile is ended there too.
	eventually(t, "the key being free at every node", func() bool { return f.votes(t, "k") == 0 })
}

func TestTheMinoritySideOfAPartitionLosesItsLeaseInTime(t *testing.T) {
	t.Parallel()
	const lease = 2 * time.Second
	f := startFleet(t, 3)
	a, b := join(t, f.proxied), join(t, f.direct)
	machine := hiccups.Start(t)
	var g driver.Grant
	var w <-chan result
	for queued := false; !queued; {
		g = a.take("k", lease)
		var done chan result
		if done, queued = b.await("k", ttl); !queued { // this machine has slept for as long as the lease lasts
			res := <-done
			if res.err != nil {
				t.Fatal(res.err)
			}
			b.drop(res.Grant)
		}
		w = done
	}
	for _, p := range f.proxies[1:] {
		defer p.BlackHole(redistest.ToServer)()
		defer p.BlackHole(redistest.ToClient)()
	}
	deadline := g.Deadline
	for time.Now().Before(deadline) {
		switch r := a.renew(g, lease); {
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
	if late, most := next.at.Sub(deadline), machine.Allow(time.Second+slack); late > most {
		t.Errorf("the key was granted %v after the holder's deadline, want at most %v", late, most)
	}
	if next.Token <= g.Token {
		t.Errorf("token %d was granted after token %d", next.Token, g.Token)
	}
	b.drop(next.Grant)
}

// TestTokensNeverGoBackWhileNodesAreKilledInTurn kills nodes during 120 acquisitions, or 1,000 if
// full counts are asked for, or LOCKAROUND_ACQUISITIONS.
func TestTokensNeverGoBackWhileNodesAreKilledInTurn(t *testing.T) {
	t.Parallel()
	// Each node is killed once, or some 16 times.
	acquisitions := int64(counts.Of(t, "LOCKAROUND_ACQUISITIONS", 120, 1000))
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
			g, err := p.Acquire(within(t, patience), r)
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
		eventually(t, "acquisitions with a node down", func() bool { return done.Load() >= min(at+20, acquisitions) })
		s.Restart() // empty
		kills++
		at = done.Load()
		eventually(t, "acquisitions with the node back", func() bool { return done.Load() >= min(at+20, acquisitions) })
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
		g := a.take("k", ttl)
		if r := a.renew(g, ttl); r.Err != nil {
			t.Fatal(r.Err)
		}
		a.drop(g)
	}
}

func TestBootMarkerStaysForEverOnlyForTheDelayedRestart(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	without, with := join(t, f.direct), join(t, f.direct, WithRestartDelay(time.Millisecond))
	for _, step := range []struct {
		by    *peer
		stays bool
	}{{without, false}, {without, false}, {with, true}, {without, true}} {
		step.by.drop(step.by.take("k", ttl))
		for _, c := range f.direct {
			left, err := c.PTTL(t.Context(), bootKey).Result()
			if stays := left == -1; err != nil || stays != step.stays || !stays && (left <= 24*time.Hour || left > 48*time.Hour) {
				t.Errorf("the marker lasts %v, %v; want for ever: %v", left, err, step.stays)
			}
		}
	}
}

func TestPingNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 3)
	const minimal = "resetkeys resetchannels -@all ~lr1:* &lr1:* +evalsha +eval +time +get +set +hmget +hget +hset +hdel " +
		"+zadd +zrem +zrange +zcard +zscore +pexpire +pttl +publish +subscribe +ping"
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
	if err := a.Ping(within(t, patience)); err != nil {
		t.Fatalf("ping with the rights that are asked for: %v", err)
	}
	g := a.take("k", ttl)
	b := join(t, nodes)
	w := b.queue("k", ttl)
	a.drop(g)
	next := <-w
	if next.err != nil {
		t.Fatal(next.err)
	}
	if err := a.Oust(within(t, patience), "k", next.Token); err != nil {
		t.Fatal(err)
	}
	for _, s := range f.servers[:2] {
		if answer, err := s.Do("ACL", "SETUSER", "locks", "-zadd"); err != nil || answer != "+OK" {
			t.Fatalf("ACL SETUSER: %s, %v", answer, err)
		}
	}
	err := a.Ping(within(t, patience))
	if refused := new(driver.PermanentError); !errors.As(err, &refused) {
		t.Errorf("ping without the right to ZADD at two of three nodes: %v", err)
	}
	t.Log(err)
}
