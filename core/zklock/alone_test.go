package zklock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/zklock"
)

// TestTheFirstOfAKeyIsGrantedByTheRequestThatMakesItsNode compares the grant with what others
// read of it.
func TestTheFirstOfAKeyIsGrantedByTheRequestThatMakesItsNode(t *testing.T) {
	t.Parallel()
	_, _, a, d := pair(t)
	b := open(t, d)
	var last int64
	for range 20 {
		for _, p := range []*process{a, b} {
			g := p.take("k", hold)
			if g.Token <= last {
				t.Fatalf("token %d came after %d", g.Token, last)
			}
			last = g.Token
			st := b.state("k")
			if len(st.Holders) != 1 || st.Holders[0].Token != g.Token || st.Holders[0].Remaining < hold/2 {
				t.Fatalf("a lease with token %d for %v is shown as %+v", g.Token, hold, st)
			}
			p.drop(g)
		}
	}
}

// TestWaiterSoonLastsForItsPlaceOnly reads the node of a waiter, which says the TTL at first.
func TestWaiterSoonLastsForItsPlaceOnly(t *testing.T) {
	t.Parallel()
	s, _, a, d := pair(t)
	b := open(t, d)
	conn := raw(t, s)
	g := a.take("k", hold)
	w := b.queue("k", hold)
	says := func() (all []string) {
		names, _, err := conn.Children(zklock.DefaultRoot + "/=k")
		if err != nil || len(names) != 2 {
			t.Fatalf("the key has the nodes %q, %v; want two", names, err)
		}
		for _, name := range names {
			data, _, err := conn.Get(zklock.DefaultRoot + "/=k/" + name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(data))
		}
		slices.Sort(all)
		return all
	}
	want := []string{"placed 10000", "placed 300000"}
	eventually(t, "a sign of life of the waiter", func() bool { return slices.Equal(says(), want) })
	a.drop(g)
	next := granted(t, "the hand-over", w)
	if next.Token <= g.Token {
		t.Errorf("token %d came after %d", next.Token, g.Token)
	}
	if left := time.Until(next.Deadline); left < hold/2 {
		t.Errorf("a lease of %v that was waited for lasts %v", hold, left)
	}
	b.drop(next)
}

// TestTokensRiseInTheOrderOfTheQueueWhateverTheModes has requests of all modes wait.
func TestTokensRiseInTheOrderOfTheQueueWhateverTheModes(t *testing.T) {
	t.Parallel()
	_, _, a, d := pair(t)
	others := []*process{open(t, d), open(t, d), a}
	g := a.take("k", hold)
	last := g.Token
	var queue []<-chan outcome
	modes := []driver.Mode{
		driver.Shared, driver.Shared, driver.Exclusive, driver.Semaphore, driver.Semaphore, driver.Semaphore,
		driver.Exclusive, driver.Shared, driver.Semaphore, driver.Exclusive, driver.Exclusive, driver.Shared,
	}
	for i, mode := range modes {
		r := permit("k", hold)
		if r.Mode = mode; mode != driver.Semaphore {
			r.Limit = 0
		}
		queue = append(queue, others[i%len(others)].queueAs(r))
	}
	a.drop(g)
	for i, w := range queue {
		g := granted(t, "the next grant", w)
		if g.Token <= last {
			t.Errorf("token %d of a grant in mode %v follows %d", g.Token, modes[i], last)
		}
		last = g.Token
		others[i%len(others)].drop(g)
	}
	if next := a.take("k", hold); next.Token <= last {
		t.Errorf("token %d of a free key follows %d", next.Token, last)
	} else {
		a.drop(next)
	}
}

// TestGrantWithoutAWriteEndsWithItsNode reads the node of a holder that has waited, and was not
// renewed.
func TestGrantWithoutAWriteEndsWithItsNode(t *testing.T) {
	t.Parallel()
	s, _, a, d := pair(t)
	b := open(t, d)
	conn := raw(t, s)
	const ttl = 2 * time.Second // of which the margin is small
	unwritten := 0
	eventually(t, "some grants without a write", func() bool {
		g := a.take("k", hold)
		w := b.queue("k", ttl)
		time.Sleep(ttl / 20) // it writes if it has waited for twice as long
		a.drop(g)
		g = granted(t, "the hand-over", w)
		_, stat, err := conn.Get(zklock.DefaultRoot + "/=k/" + g.Ref)
		if err != nil {
			t.Fatal(err)
		}
		if stat.Version == 0 {
			unwritten++
		}
		// The servers' clock is this machine's, and counts in milliseconds.
		if end := time.UnixMilli(stat.Mtime + 1).Add(ttl); g.Deadline.After(end) {
			t.Errorf("the holder's deadline is %v after the end that its node says", g.Deadline.Sub(end))
		}
		b.leave(g)
		return unwritten >= 5
	})
}

// TestWhoIsLetInBesideOthersTellsTheOneBehind reads the node of a holder that has waited. The one behind
// it watches that node, and all holders from then on.
func TestWhoIsLetInBesideOthersTellsTheOneBehind(t *testing.T) {
	t.Parallel()
	s, _, a, d := pair(t)
	b, c := open(t, d), open(t, d)
	conn := raw(t, s)
	g := a.take("k", hold)
	w := b.queueAs(permit("k", hold))
	behind := c.queue("k", hold)
	a.drop(g)
	g = granted(t, "the hand-over", w)
	if !g.Contended {
		t.Error("Grant.Contended is false, but another process waits")
	}
	if data, _, err := conn.Get(zklock.DefaultRoot + "/=k/" + g.Ref); err != nil || !strings.HasPrefix(string(data), "granted ") {
		t.Errorf("the holder's node says %q, %v; want that it is granted", data, err)
	}
	b.drop(g)
	c.drop(granted(t, "the grant to the one behind", behind))
}

// TestPlaceThatHasEndedUnheardIsNotGranted holds back what a waiter sends and hears. The one behind it
// takes its turn, and the waiter hears only then that the one before it has gone.
func TestPlaceThatHasEndedUnheardIsNotGranted(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	_, proxy, a, d := pair(t)
	b, c := open(t, d), open(t, d)
	for range 10 { // on a slow machine the place ends before it is held back
		g := b.take("k", hold)
		w, waits := a.enqueue("k", ttl)
		next := c.queue("k", hold)
		resume := proxy.Stall()
		t.Cleanup(resume)
		b.drop(g)
		g = granted(t, "the grant to the one behind", next)
		resume()
		o := await(t, "the end of the wait", w)
		if o.err == nil && time.Now().Before(o.Deadline) {
			t.Fatalf("granted the key for %v, though another holds it", time.Until(o.Deadline))
		}
		c.drop(g)
		if waits && errors.Is(o.err, driver.ErrPlaceLost) {
			return
		}
		if o.err == nil {
			a.leave(o.Grant)
		}
	}
	t.Error("the place was never lost")
}
