package redlock

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/internal/redistest"
)

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
	rises(t, g.Token, next.Token)
	b.drop(next)
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
			g, err := b.wait("k", ttl)
			next = result{g, err, time.Now()}
			return err == nil
		})
		if next.at.Before(g.Deadline) {
			t.Errorf("the key was granted %v before the first holder's deadline", g.Deadline.Sub(next.at))
		}
		b.drop(next.Grant)
	})
}

// TestTokensNeverGoBackWhileNodesAreKilledInTurn kills nodes during 120 acquisitions, or 1,000 if
// full counts are asked for, or as many as LOCKAROUND_COUNTS says.
func TestTokensNeverGoBackWhileNodesAreKilledInTurn(t *testing.T) {
	if testing.Short() {
		t.Skip("kills servers for seconds")
	}
	t.Parallel()
	// Each node is killed once, or some 16 times.
	acquisitions := int64(counts.Of(t, "acquisitions", 120, 1000))
	f := startFleet(t, 3)
	ps := []*peer{join(t, f.direct), join(t, f.direct)}
	var done atomic.Int64
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		var last int64
		for i := 0; done.Load() < acquisitions; i++ {
			p := ps[i%2]
			g, err := p.wait("k", 2*time.Second)
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

// TestVoteForAnyKeyPutsTheMarkerRight asks for keys that the node does not know yet, with tokens
// that it can accept at once.
func TestVoteForAnyKeyPutsTheMarkerRight(t *testing.T) {
	t.Parallel()
	f := startFleet(t, 1)
	c := f.direct[0]
	const day = 24 * time.Hour
	for i, step := range []struct {
		was, delay time.Duration // was 0: there is none; -1: for ever
		stays      bool
	}{{0, 0, false}, {time.Hour, 0, false}, {47 * time.Hour, 0, false}, {47 * time.Hour, time.Millisecond, true}, {-1, 0, true}, {-1, time.Millisecond, true}} {
		c.Del(t.Context(), bootKey)
		if step.was != 0 {
			c.Set(t.Context(), bootKey, time.Now().Add(-time.Hour).UnixMicro(), max(step.was, 0))
		}
		before := c.Get(t.Context(), bootKey).Val()
		vote := command{
			op: opVote, key: fmt.Sprint("k", i), owner: newOwner(), ttl: ttl, placeTTL: time.Second,
			restartDelay: step.delay, token: time.Now().Add(time.Second).UnixMicro(),
		}
		if r := newClientWire(c, patience).run(within(t, patience), []command{vote})[0]; r.status != statusGranted {
			t.Fatalf("step %d: %s, %v", i, r.status, r.err)
		}
		left := c.PTTL(t.Context(), bootKey).Val()
		if stays := left == -1; stays != step.stays || !stays && (left <= day || left > 2*day) {
			t.Errorf("step %d: the marker lasts %v; want for ever: %v", i, left, step.stays)
		}
		if after := c.Get(t.Context(), bootKey).Val(); before != "" && after != before {
			t.Errorf("step %d: the node's data began at %s, and then at %s", i, before, after)
		}
	}
}
