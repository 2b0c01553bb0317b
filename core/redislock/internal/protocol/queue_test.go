package protocol_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

func TestHandOverIsFirstComeFirstServed(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	for n := 2; n <= 5; n++ {
		r := c.acquire(ask(n), protocol.Queued)
		if r.Head != (n == 2) || r.Waiting != int64(n-1) || r.Left != 10*second {
			t.Errorf("owner %d queued with %+v", n, r)
		}
	}
	c.end(protocol.EndArgs{Owner: owner(3)}, protocol.Withdrawn)
	c.pushes()
	last := int64(0)
	for _, pair := range [][2]int{{1, 2}, {2, 4}, {4, 5}} {
		c.end(protocol.EndArgs{Owner: owner(pair[0])}, protocol.Ended)
		p := c.onlyPush(channel(pair[1]))
		if p.Kind != protocol.PushGrant || p.Owner != owner(pair[1]) || p.Key != c.key || p.Token <= last || p.Waiting != c.inspect().Waiting {
			t.Errorf("push %+v", p)
		}
		last = p.Token
	}
}

func TestWithdrawalMakesTheNextOneHead(t *testing.T) {
	c := startClocked(t)
	for n := 1; n <= 5; n++ {
		c.acquire(ask(n), map[bool]protocol.Status{true: protocol.Granted, false: protocol.Queued}[n == 1])
	}
	for _, n := range []int{3, 4, 2} {
		c.end(protocol.EndArgs{Owner: owner(n)}, protocol.Withdrawn)
	}
	if r := c.acquire(again(5), protocol.Queued); !r.Head || r.Waiting != 1 {
		t.Errorf("the only one left got %+v", r)
	}
}

func TestGrantByPushLastsAsLongAsThePlaceHad(t *testing.T) {
	for _, tt := range []struct {
		waited, want time.Duration
	}{
		{0, 3 * second},
		{second, 2 * second},
		{2900 * time.Millisecond, second}, // at least a third of E
	} {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.acquire(ask(2), protocol.Queued)
		c.at = c.at.Add(tt.waited)
		c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
		if left := c.inspect().Left; left != tt.want {
			t.Errorf("after %v in the queue the grant lasts %v, want %v", tt.waited, left, tt.want)
		}
	}
}

func TestDeadWaitersAreSkipped(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	c.acquire(ask(2), protocol.Queued)
	c.at = c.at.Add(2 * second)
	c.acquire(ask(3), protocol.Queued)
	c.at = c.at.Add(second)
	c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	if st := c.now(); len(st.Holders) != 1 || st.Holders[0].Owner != name(3) || len(st.Queue) != 0 {
		t.Errorf("%+v", st)
	}
	c.acquire(again(2), protocol.Over)
}

func TestPlacesOfTheDeadAreNoWaiters(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	c.acquire(ask(2), protocol.Queued)
	c.at = c.at.Add(2 * second)
	c.acquire(ask(3), protocol.Queued)
	for i, want := range []int64{2, 1, 0} {
		if r := c.inspect(); r.Waiting != want {
			t.Errorf("%d s later: %d wait, want %d", 2*i, r.Waiting, want)
		}
		c.at = c.at.Add(2 * second)
	}
}

func TestRefreshRevivesAPlaceBeforeTheQueueIsLookedAt(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	c.acquire(ask(2), protocol.Queued)
	c.at = c.at.Add(time.Minute)
	c.acquire(again(2), protocol.Granted)
	if left := c.inspect().Left; left != 10*second {
		t.Errorf("granted by its own refresh for %v, want the full length", left)
	}
	c.noPushTo(channel(2))
}

func TestQueueOfTheDeadIsClearedInSteps(t *testing.T) {
	fill := func(t *testing.T) *clocked {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		for n := 2; n < 152; n++ {
			c.acquire(ask(n), protocol.Queued)
		}
		c.at = c.at.Add(time.Minute)
		c.pushes()
		return c
	}
	t.Run("waiting", func(t *testing.T) {
		c := fill(t)
		if r := c.acquire(ask(200), protocol.Queued); !r.More || r.Head || r.Waiting != 150-64+1 {
			t.Errorf("first call: %+v", r)
		}
		if r := c.acquire(again(200), protocol.Queued); !r.More {
			t.Errorf("second call: %+v", r)
		}
		if r := c.acquire(again(200), protocol.Granted); r.More || r.Waiting != 0 {
			t.Errorf("third call: %+v", r)
		}
		c.noPush()
	})
	t.Run("trying once", func(t *testing.T) {
		c := fill(t)
		try := ask(200)
		try.Wait = false
		for range 2 {
			if r := c.acquire(try, protocol.Busy); !r.More || r.Left != 0 {
				t.Errorf("%+v", r)
			}
		}
		c.acquire(try, protocol.Granted)
	})
	t.Run("end", func(t *testing.T) {
		c := fill(t)
		for _, more := range []bool{true, true, false} {
			if r := c.end(protocol.EndArgs{Owner: owner(1)}, protocol.NotMine); r.More != more {
				t.Errorf("%+v, want More %v", r, more)
			}
		}
		if st := c.now(); len(st.Holders) != 0 || len(st.Queue) != 0 {
			t.Errorf("%+v", st)
		}
	})
	t.Run("next", func(t *testing.T) {
		c := fill(t)
		c.at = c.at.Add(-time.Minute) // the holder lives, the waiters are made to die
		c.renew(1, time.Hour, protocol.Renewed)
		c.at = c.at.Add(time.Minute)
		r := c.end(protocol.EndArgs{Owner: owner(1), Next: next(300)}, protocol.Ended)
		if !r.More || r.Next != protocol.Queued || r.Head {
			t.Errorf("%+v", r)
		}
		c.acquire(again(300), protocol.Queued)
		c.acquire(again(300), protocol.Granted)
	})
}

func TestFullQueueRefusesANewPlaceOnly(t *testing.T) {
	c := startClocked(t)
	bounded := func(n, most int) protocol.AcquireArgs {
		a := ask(n)
		a.MaxWaiting = most
		return a
	}
	c.acquire(bounded(1, 2), protocol.Granted)
	c.acquire(bounded(2, 2), protocol.Queued)
	c.acquire(bounded(3, 2), protocol.Queued)
	if r := c.acquire(bounded(4, 2), protocol.Full); r.Waiting != 2 || r.Left != 10*second {
		t.Errorf("%+v", r)
	}
	c.acquire(bounded(2, 1), protocol.Queued) // its first reply was lost
	c.acquire(bounded(1, 1), protocol.Granted)
	c.acquire(bounded(5, 3), protocol.Queued)
	c.end(protocol.EndArgs{Owner: owner(3)}, protocol.Withdrawn)
	c.acquire(bounded(4, 2), protocol.Full)
	c.acquire(bounded(4, 3), protocol.Queued)

	c.at = c.at.Add(2 * second)
	c.acquire(again(2), protocol.Queued)
	c.at = c.at.Add(2 * second) // 4 and 5 have died
	c.acquire(bounded(6, 1), protocol.Full)
	if r := c.acquire(bounded(6, 2), protocol.Queued); r.Waiting != 2 {
		t.Errorf("%+v", r)
	}
	c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	c.acquire(again(2), protocol.Granted)
	c.acquire(again(6), protocol.Queued)
}

func TestDeadOfALongQueueAreFoundByTheNextRefusals(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	for n := 2; n < 202; n++ {
		c.acquire(ask(n), protocol.Queued)
	}
	c.at = c.at.Add(2 * second)
	c.renew(1, time.Hour, protocol.Renewed)
	for n := 2; n < 102; n++ {
		c.acquire(again(n), protocol.Queued)
	}
	c.at = c.at.Add(2 * second) // the second half has died
	bounded := ask(300)
	bounded.MaxWaiting = 101
	for range 50 {
		r, err := protocol.ParseAcquire(c.call(protocol.Acquire, bounded.Args()))
		switch {
		case err != nil:
			t.Fatal(err)
		case r.Status == protocol.Queued:
			return
		}
		c.at = c.at.Add(17 * time.Millisecond)
	}
	t.Error("after 50 refusals the dead still take the room")
}

func TestHolderHearsThatSomebodyWaits(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	c.noPush()
	hears := func(waiting int64) {
		t.Helper()
		if p := c.onlyPush(channel(1)); p.Kind != protocol.PushWait || p.Owner != owner(1) || p.Key != c.key || p.Waiting != waiting {
			t.Errorf("push %+v", p)
		}
	}
	try := ask(9)
	try.Wait = false
	if r := c.acquire(try, protocol.Busy); r.Left != 10*second {
		t.Errorf("busy with %+v", r)
	}
	hears(0)
	c.acquire(ask(2), protocol.Queued)
	hears(1)
	c.acquire(ask(3), protocol.Queued)
	c.noPush()
	c.acquire(again(3), protocol.Queued)
	c.noPush()
	c.acquire(again(2), protocol.Queued)
	hears(2)
	if r := c.renew(1, second, protocol.Renewed); r.Waiting != 2 {
		t.Errorf("renewal says %d wait", r.Waiting)
	}
}

func TestNextTakesThePlaceOfTheEnded(t *testing.T) {
	t.Run("nobody waits", func(t *testing.T) {
		c := startClocked(t)
		old := c.acquire(ask(1), protocol.Granted).Token
		r := c.end(protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.Ended)
		if r.Next != protocol.Granted || r.Token <= old || r.Left != 10*second {
			t.Errorf("%+v", r)
		}
		c.noPush()
		again2 := c.end(protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.NotMine)
		if again2.Next != 0 {
			t.Errorf("the repeated end says %+v", again2)
		}
		if g := c.acquire(again(2), protocol.Granted); g.Token != r.Token {
			t.Errorf("asked again, next has token %d, want %d", g.Token, r.Token)
		}
	})
	t.Run("somebody waits", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.acquire(ask(3), protocol.Queued)
		c.pushes()
		r := c.end(protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.Ended)
		if r.Next != protocol.Queued || !r.Head || r.Waiting != 1 || r.Left != 3*second {
			t.Errorf("%+v", r)
		}
		if p := c.onlyPush(channel(3)); p.Kind != protocol.PushGrant || p.Waiting != 1 {
			t.Errorf("push %+v", p)
		}
		c.end(protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.NotMine)
		c.acquire(again(2), protocol.Queued)
	})
	t.Run("not by a repeated end", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
		c.end(protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.Absent)
		c.acquire(again(2), protocol.Over)
	})
	t.Run("not if it has ended", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.end(protocol.EndArgs{Owner: owner(2), Bury: true}, protocol.NotMine)
		if r := c.end(protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.Ended); r.Next != protocol.Over {
			t.Errorf("%+v", r)
		}
		if c.inspect().Held {
			t.Error("the key is held")
		}
	})
	t.Run("not after expiry", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.at = c.at.Add(10 * second)
		if r := c.end(protocol.EndArgs{Owner: owner(1), Next: next(2)}, protocol.Absent); r.Next != 0 {
			t.Errorf("%+v", r)
		}
	})
}
