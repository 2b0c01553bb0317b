package protocol_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/redislock/internal/protocol"
)

func TestRepeatedAcquireIsTheSameGrantAndExtendsIt(t *testing.T) {
	c := startClocked(t)
	first := c.acquire(ask(1), protocol.Granted)
	if left := c.inspect().Left; left != 10*second || first.Token != c.at.UnixMilli()*1000+c.at.UnixMicro()%1000/2 {
		t.Errorf("granted %+v for %v", first, left)
	}
	c.at = c.at.Add(4 * second)
	repeated := c.acquire(ask(1), protocol.Granted)
	if left := c.inspect().Left; left != 10*second || repeated != first {
		t.Errorf("the repeated acquire got %+v for %v, the first %+v", repeated, left, first)
	}
}

func TestNoScriptShortensALiveLease(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	short := ask(1)
	short.Length = second
	c.acquire(short, protocol.Granted)
	c.renew(1, time.Second, protocol.Renewed)
	c.end(protocol.EndArgs{Owner: owner(2)}, protocol.NotMine)
	c.acquire(ask(3), protocol.Queued)
	c.renew(3, second, protocol.Lost)
	if left := c.inspect().Left; left != 10*second {
		t.Errorf("the lease has %v left, want 10s", left)
	}
}

func TestExpiryThatWasSeenStandsEvenIfTheClockGoesBack(t *testing.T) {
	for _, waiting := range []bool{false, true} {
		c := startClocked(t)
		start := c.at
		c.acquire(ask(1), protocol.Granted)
		if waiting {
			c.acquire(ask(2), protocol.Queued)
		}
		c.at = start.Add(10 * second)
		c.acquire(again(3), protocol.Over) // changes nothing else, but sees the expiry
		if st := c.now(); len(st.Holders) != 0 {
			t.Fatalf("after an expiry was seen: %+v", st)
		}
		c.at = start
		c.renew(1, second, protocol.Lost)
		c.acquire(again(1), protocol.Over)
	}
}

func TestKeyIsHeldUntilItIsGone(t *testing.T) {
	s := start(t)
	key := protocol.Key("k")
	for range 20 {
		take := protocol.TakeArgs{Owner: owner(1), Channel: "c", Length: 10 * time.Millisecond}
		s.do("SET", key, take.Value(), "PX", 10)
		held := true
		for held {
			// In one transaction the two see the key at nearly the same time.
			tx := s.rdb.TxPipeline()
			inspected := tx.Eval(t.Context(), protocol.Inspect.Source, []string{key, protocol.Stream(key)})
			there := tx.Exists(t.Context(), key)
			if _, err := tx.Exec(t.Context()); err != nil {
				t.Fatal(err)
			}
			r, err := protocol.ParseInspect(inspected.Val())
			if err != nil {
				t.Fatal(err)
			}
			if held = r.Held; !held && there.Val() == 1 {
				t.Fatal("the key is there, and not held")
			}
		}
	}
}

func TestInspectWritesNothing(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	c.acquire(ask(2), protocol.Queued)
	before := c.now()
	c.at = c.at.Add(time.Minute)
	if r := c.inspect(); r.Held || r.Waiting != 0 || r.Left != 0 {
		t.Errorf("inspect after the lease's end: %+v", r)
	}
	if after := c.now(); !reflect.DeepEqual(after, before) {
		t.Error("inspect changed the hash")
	}
}

func TestClockThatWentBackCannotStretchALease(t *testing.T) {
	c := startClocked(t)
	first := c.acquire(ask(1), protocol.Granted)
	c.acquire(ask(2), protocol.Queued)
	c.at = c.at.Add(-time.Hour)
	if left := c.inspect().Left; left != 10*second {
		t.Errorf("%v left, want the lease's full length of 10s", left)
	}
	c.renew(1, second, protocol.Renewed)
	c.acquire(again(2), protocol.Queued)
	c.at = c.at.Add(10 * second)
	c.acquire(again(2), protocol.Granted)
	r := c.acquire(again(2), protocol.Granted)
	if r.Token != first.Token+1 {
		t.Errorf("token %d after %d, want the next number while the clock is behind", r.Token, first.Token)
	}
}

func TestClockThatWentBackCannotStretchAPlaceInTheQueue(t *testing.T) {
	c := startClocked(t)
	c.acquire(ask(1), protocol.Granted)
	c.acquire(ask(2), protocol.Queued)
	c.at = c.at.Add(-time.Hour)
	c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	if st := c.now(); len(st.Holders) != 1 || st.Holders[0].Owner != name(2) || st.Holders[0].Expires != c.at.UnixMilli()+3000 {
		t.Errorf("granted to %+v, want until %d at most", st.Holders, c.at.UnixMilli()+3000)
	}
}

func TestOnlyAFirstRequestCreates(t *testing.T) {
	c := startClocked(t)
	c.acquire(again(1), protocol.Over)
	if n := c.do("EXISTS", c.key); n != int64(0) {
		t.Error("a refresh created the hash")
	}
	c.acquire(ask(2), protocol.Granted)
	c.acquire(again(1), protocol.Over)
}

func TestBuriedOwnerComesBackOnlyWhenNoRequestOfItCanCome(t *testing.T) {
	t.Run("held", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.end(protocol.EndArgs{Owner: owner(1), Bury: true}, protocol.Ended)
		if c.take(1) || c.take(2) {
			t.Error("the key of a buried owner was taken as if it were absent")
		}
		c.at = c.at.Add(protocol.Linger - time.Millisecond)
		c.acquire(ask(1), protocol.Over)
	})
	t.Run("waited", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.acquire(ask(2), protocol.Queued)
		c.end(protocol.EndArgs{Owner: owner(2), Bury: true}, protocol.Withdrawn)
		c.acquire(ask(2), protocol.Over)
		c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
		c.acquire(ask(2), protocol.Over)
		c.at = c.at.Add(protocol.Linger)
		if !c.take(2) {
			t.Error("the key stays for longer than it remembers")
		}
	})
	t.Run("ended before its request arrived", func(t *testing.T) {
		c := startClocked(t)
		c.end(protocol.EndArgs{Owner: owner(1), Bury: true}, protocol.Absent)
		c.acquire(ask(1), protocol.Over)
	})
	t.Run("three others ended since", func(t *testing.T) {
		c := startClocked(t)
		for n := 1; n <= 4; n++ {
			for range 2 {
				c.end(protocol.EndArgs{Owner: owner(n), Bury: true}, map[bool]protocol.Status{true: protocol.NotMine, false: protocol.Absent}[c.there()])
			}
		}
		c.acquire(ask(1), protocol.Over)
	})
}

func TestEndTellsWhatHappened(t *testing.T) {
	c := startClocked(t)
	c.end(protocol.EndArgs{Owner: owner(9)}, protocol.Absent)
	c.acquire(ask(1), protocol.Granted)
	c.end(protocol.EndArgs{Owner: owner(2)}, protocol.NotMine)
	c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Ended)
	if c.there() {
		t.Error("the key stays after its end")
	}
	c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Absent)
	c.do("FLUSHALL")
	if r := c.end(protocol.EndArgs{Owner: owner(1)}, protocol.Absent); r.Token != 0 {
		t.Errorf("after a loss of data: %+v", r)
	}
}

func TestMinHoldKeepsTheKeyTakenByNobody(t *testing.T) {
	c := startClocked(t)
	granted := c.at
	c.acquire(ask(1), protocol.Granted)
	c.at = granted.Add(second)
	r := c.end(protocol.EndArgs{Owner: owner(1), Keep: 4 * second}, protocol.Ended)
	if r.Left != 3*second {
		t.Errorf("kept for %v, want 3s", r.Left)
	}
	c.end(protocol.EndArgs{Owner: owner(1), Keep: 4 * second}, protocol.NotMine)
	c.renew(1, second, protocol.Lost)
	c.acquire(again(1), protocol.Over)
	try := ask(2)
	try.Wait = false
	if r := c.acquire(try, protocol.Busy); r.Left != 3*second {
		t.Errorf("busy with %+v", r)
	}
	if r := c.acquire(ask(3), protocol.Queued); !r.Head || r.Left != 3*second {
		t.Errorf("queued with %+v", r)
	}
	c.noPush()
	c.at = granted.Add(4 * second)
	c.acquire(again(3), protocol.Granted)
}

func TestMinHoldCountsFromTheGrant(t *testing.T) {
	t.Run("past", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.at = c.at.Add(4 * second)
		c.end(protocol.EndArgs{Owner: owner(1), Keep: 4 * second}, protocol.Ended)
		if c.inspect().Held {
			t.Error("the key is held longer than MinHold")
		}
	})
	t.Run("in the future, the clock having gone back", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.at = c.at.Add(-time.Hour)
		if r := c.end(protocol.EndArgs{Owner: owner(1), Keep: 4 * second}, protocol.Ended); r.Left != 4*second {
			t.Errorf("kept for %v, want 4s at most", r.Left)
		}
	})
	t.Run("only by the end of a live lease", func(t *testing.T) {
		c := startClocked(t)
		c.acquire(ask(1), protocol.Granted)
		c.at = c.at.Add(10 * second)
		c.end(protocol.EndArgs{Owner: owner(1), Keep: time.Minute}, protocol.Absent)
		if c.inspect().Held {
			t.Error("the key is held")
		}
	})
}
