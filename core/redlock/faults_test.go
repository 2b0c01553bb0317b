package redlock

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/internal/hiccups"
	"github.com/lockaround/lockaround/core/internal/redistest"
	"github.com/lockaround/lockaround/core/testservers"
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
		w := b.queue("k", ttl)
		a.drop(g)
		next := <-w
		if next.err != nil {
			t.Fatalf("hand-over: %v", next.err)
		}
		rises(t, last, g.Token, next.Token)
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
	for name, hurt := range map[string]func(*testservers.Server){
		"down":    (*testservers.Server).Kill,
		"stalled": (*testservers.Server).Pause,
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
				f.servers[0].Resume()
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
	for how, acquire := range map[string]func(string, time.Duration) (driver.Grant, error){"without": b.try, "with": b.wait} {
		if _, err := acquire("k", ttl); !isNoMajority(err) {
			t.Errorf("acquire %s waiting, with 3 of 5 nodes down, returned %v, not a *NoMajorityError", how, err)
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
	f.servers[1].Pause()
	defer f.servers[1].Resume()
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
	f.servers[1].Resume()
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
	rises(t, g.Token, next.Token)
	b.drop(next.Grant)
}
