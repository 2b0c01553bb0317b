package check_test

import (
	"testing"
	"time"

	"github.com/lockaround/lockaround/core/lab/faults/check"
	"github.com/lockaround/lockaround/core/lab/faults/history"
)

// together is an acquisition by who may hold beside others: a reader, or one of a
// semaphore with that much room.
func (b *book) together(process, client int, token int64, mode string, room int, call, ret float64) {
	b.add(history.Event{
		Process: process, Client: client, Key: key, Op: history.Acquire, Token: token, Mode: mode, Room: room,
		Call: at(call), Return: at(ret), Limit: at(ret + 1), Deadline: at(ret) + int64(ttl),
	})
}

func (b *book) releasedBy(process, client int, token int64, call, ret float64) {
	e := history.Event{Process: process, Client: client, Key: key, Op: history.Release, Token: token, Call: at(call)}
	b.add(e)
	e.Op, e.Return = history.Released, at(ret)
	b.add(e)
}

// shared is a whole section of a reader.
func (b *book) shared(process, client int, token int64, from, to float64) {
	b.together(process, client, token, history.Shared, 0, from-1, from)
	b.releasedBy(process, client, token, to, to+0.5)
}

// counted is one of a semaphore's holder.
func (b *book) counted(process int, token int64, room int, from, to float64) {
	b.together(process, 1, token, history.Semaphore, room, from-1, from)
	b.releasedBy(process, 1, token, to, to+0.5)
}

func (b *book) read(process int, token int64, ms float64, value int64, err string) {
	b.add(history.Event{
		Process: process, Client: 1, Key: key, Op: history.Read, Mode: history.Shared, Token: token, Value: value,
		Call: at(ms), Return: at(ms) + 1e4, Error: err,
	})
}

func TestReadersHoldTogetherAndNotBesideAWriter(t *testing.T) {
	judge(t, []story{
		{"readers of several processes", "", func(b *book) {
			b.shared(2, 1, token(3, 0), 4, 9)
			b.shared(3, 1, token(2, 0), 5, 7)
			b.shared(3, 2, token(2, 1), 6, 8)
			b.held(1, token(4, 0), 10, 11, 1)
		}},
		{"a reader beside a writer", "S1 linear", func(b *book) {
			b.held(2, token(2, 0), 4, 9, 1)
			b.shared(3, 1, token(3, 0), 5, 7)
		}},
		{"a writer beside a reader", "S1 linear", func(b *book) {
			b.shared(3, 1, token(2, 0), 5, 9)
			b.held(2, token(3, 0), 6, 7, 1)
		}},
		{"what is read stays", "", func(b *book) {
			b.together(2, 1, token(2, 0), history.Shared, 0, 3, 4)
			b.read(2, token(2, 0), 5, 1, "")
			b.read(2, token(2, 0), 7, 1, "")
			b.releasedBy(2, 1, token(2, 0), 8, 9)
		}},
		{"somebody writes meanwhile", "S1", func(b *book) {
			b.together(2, 1, token(2, 0), history.Shared, 0, 3, 4)
			b.read(2, token(2, 0), 5, 1, "")
			b.guarded(history.Write, 1, token(3, 0), 6, 2, "")
			b.read(2, token(2, 0), 7, 2, history.Stale)
			b.releasedBy(2, 1, token(2, 0), 8, 9)
		}},
		{"somebody writes when the lease is over", "", func(b *book) {
			b.together(2, 1, token(2, 0), history.Shared, 0, 3, 4)
			b.read(2, token(2, 0), 5, 1, "")
			b.held(1, token(3, 0), 600, 602, 1)
			b.read(2, token(2, 0), 603, 2, history.Stale)
			b.releasedBy(2, 1, token(2, 0), 604, 605)
		}},
		{"a late writer is let in after a reader", "S1 S3 linear", func(b *book) {
			b.together(2, 1, token(2, 0), history.Shared, 0, 3, 4)
			b.read(2, token(2, 0), 5, 1, "")
			b.guarded(history.Write, 1, token(1, 0), 6, 2, "")
			b.read(2, token(2, 0), 7, 2, "")
			b.releasedBy(2, 1, token(2, 0), 8, 9)
		}},
		{"a reader is refused for another reader", "S1 S3 linear", func(b *book) {
			b.shared(3, 1, token(3, 0), 4, 9)
			b.read(3, token(3, 0), 5, 1, "")
			b.together(2, 1, token(2, 0), history.Shared, 0, 5, 6)
			b.read(2, token(2, 0), 7, 1, history.Stale)
			b.releasedBy(2, 1, token(2, 0), 8, 9)
		}},
		{"somebody writes when the store has lost the lease", "", func(b *book) {
			b.together(2, 1, token(2, 0), history.Shared, 0, 3, 4)
			b.read(2, token(2, 0), 5, 1, "")
			b.wiped(10, 11)
			b.held(1, token(3, 0), 20, 21, 1)
			b.read(2, token(2, 0), 22, 2, history.Stale)
			b.releasedBy(2, 1, token(2, 0), 23, 24)
		}},
		{"beside a writer whose lease the store has lost", "", func(b *book) {
			b.acquired(2, token(2, 0), 3, 4)
			b.wiped(10, 11)
			b.shared(3, 1, token(3, 0), 20, 22)
			b.released(2, token(2, 0), 400, 401)
			b.held(1, token(4, 0), 500, 501, 1)
		}},
	})
}

func TestSemaphoreHasRoom(t *testing.T) {
	judge(t, []story{
		{"as many as there is room for", "", func(b *book) {
			b.counted(2, token(2, 0), 2, 4, 9)
			b.counted(3, token(3, 0), 2, 5, 7)
			b.counted(4, token(4, 0), 2, 8, 10)
		}},
		{"one more", "S1", func(b *book) {
			b.counted(2, token(2, 0), 2, 4, 9)
			b.counted(3, token(3, 0), 2, 5, 8)
			b.counted(4, token(4, 0), 2, 7, 10)
		}},
		{"one more, who is a reader", "S1", func(b *book) {
			b.counted(2, token(2, 0), 2, 4, 9)
			b.shared(3, 1, token(3, 0), 5, 8)
			b.counted(4, token(4, 0), 3, 7, 10)
		}},
		{"the readers of a process share a place", "", func(b *book) {
			b.counted(2, token(2, 0), 2, 4, 9)
			b.shared(3, 1, token(3, 0), 5, 8)
			b.shared(3, 2, token(3, 1), 6, 8)
		}},
		{"one more after the store has lost one", "", func(b *book) {
			b.counted(2, token(2, 0), 2, 4, 40)
			b.wiped(10, 11)
			b.counted(3, token(3, 0), 2, 20, 30)
			b.counted(4, token(4, 0), 2, 22, 30)
		}},
		{"two more after the store has lost one", "S1", func(b *book) {
			b.counted(2, token(2, 0), 2, 4, 40)
			b.wiped(10, 11)
			b.counted(3, token(3, 0), 2, 20, 30)
			b.counted(4, token(4, 0), 2, 22, 30)
			b.counted(5, token(5, 0), 2, 24, 30)
		}},
		{"a writer beside them", "S1 linear", func(b *book) {
			b.counted(2, token(2, 0), 2, 4, 9)
			b.held(3, token(3, 0), 5, 8, 1)
		}},
	})
}

func TestTokensOfThoseWhoHoldTogetherHaveNoOrder(t *testing.T) {
	judge(t, []story{
		{"a reader after another one with a larger token", "", func(b *book) {
			b.shared(2, 1, token(3, 0), 4, 9)
			b.shared(3, 1, token(2, 0), 6, 7)
		}},
		{"a reader after a writer with a larger token", "S2 linear", func(b *book) {
			b.held(2, token(3, 0), 3, 5, 1)
			b.shared(3, 1, token(2, 0), 8, 9)
		}},
		{"a writer after a reader with a larger token", "S2 linear", func(b *book) {
			b.shared(3, 1, token(3, 0), 4, 5)
			b.held(2, token(2, 0), 8, 9, 1)
		}},
	})
}

func TestKeyIsKeptFromItsGrantOn(t *testing.T) {
	kept := func(b *book, release float64) {
		e := history.Event{
			Process: 2, Client: 1, Key: key, Op: history.Acquire, Token: token(2, 0), Keep: at(100),
			Call: at(10), Return: at(11), Limit: at(12), Deadline: at(500),
		}
		b.add(e)
		b.released(2, token(2, 0), release, release+1)
	}
	judge(t, []story{
		{"to its end", "", func(b *book) {
			kept(b, 20)
			b.waited(4, 30, 108)
			b.held(3, token(3, 0), 110, 112, 1)
		}},
		{"released later", "", func(b *book) {
			kept(b, 200)
			b.held(3, token(3, 0), 202, 204, 1)
		}},
		{"granted too soon", "keep", func(b *book) {
			kept(b, 20)
			b.held(3, token(3, 0), 90, 92, 1)
		}},
		{"granted too soon as the store has lost it", "", func(b *book) {
			kept(b, 20)
			b.wiped(30, 31)
			b.held(3, token(3, 0), 90, 92, 1)
		}},
		{"free for too long when it is kept no more", "L1", func(b *book) {
			kept(b, 20)
			b.waited(4, 30, 1300)
			b.held(3, token(3, 0), 1299, 1301, 1)
		}},
	})
}

// TestWhoAsksForSeveralKeysMayHaveOneOfThem waits for nothing that can be seen.
func TestWhoAsksForSeveralKeysMayHaveOneOfThem(t *testing.T) {
	for among, want := range map[int]int{0: 2, 2: 0} {
		var b book
		b.held(1, token(1, 0), 1, 2, 0)
		b.waited(2, 10, 1300) // for a key that nobody is seen to have
		e := history.Event{
			Process: 3, Client: 1, Key: key, Op: history.Acquire, Token: token(2, 0), Among: among,
			Call: at(10), Return: at(1290), Limit: at(1300), Deadline: at(1700),
		}
		b.add(e)
		b.released(3, token(2, 0), 1295, 1296)
		if got := kinds(check.All(b.events, rules))["L1"]; got != want {
			t.Errorf("asked for with %d keys: L1 is broken %d times, want %d", among, got, want)
		}
	}
}

func TestNobodyIsPassedWhereAllAreServedInTurn(t *testing.T) {
	strictly := func(b *book, process int, tok int64, call, ret float64) {
		b.add(history.Event{
			Process: process, Client: 1, Key: key, Op: history.Acquire, Token: tok, Strict: true,
			Call: at(call), Return: at(ret), Limit: at(ret + 1), Deadline: at(ret) + int64(ttl),
		})
		b.released(process, tok, ret+1, ret+1.5)
	}
	held := func(b *book) { // all the time
		for i := range int64(40) {
			b.held(9, token(2+i, 0), float64(3+25*i), float64(26+25*i), 1+i)
		}
	}
	judge(t, []story{
		{"in the order in which they came", "", func(b *book) {
			held(b)
			strictly(b, 2, token(50, 0), 10, 1010)
			strictly(b, 3, token(51, 0), 300, 1014)
		}},
		{"who came at about the same time", "", func(b *book) {
			held(b)
			strictly(b, 3, token(50, 0), 100, 1010)
			strictly(b, 2, token(51, 0), 10, 1014)
		}},
		{"who came later is first", "turn", func(b *book) {
			held(b)
			strictly(b, 3, token(50, 0), 120, 1010)
			strictly(b, 2, token(51, 0), 10, 1014)
		}},
		{"and the earlier one was cut off", "", func(b *book) {
			held(b)
			b.fault("partition", 2, 50, 60)
			strictly(b, 3, token(50, 0), 120, 1010)
			strictly(b, 2, token(51, 0), 10, 1014)
		}},
		{"and another one was cut off", "turn", func(b *book) {
			held(b)
			b.fault("partition", 4, 50, 60)
			strictly(b, 3, token(50, 0), 120, 1010)
			strictly(b, 2, token(51, 0), 10, 1014)
		}},
	})
	judgeBy(t, rules.WithStuck(50*time.Millisecond).WithEntry(200*time.Millisecond), []story{
		{"another one was cut off, and kept the earlier one from taking a place", "", func(b *book) {
			held(b)
			b.fault("partition", 4, 50, 60)
			strictly(b, 3, token(50, 0), 309, 1010)
			strictly(b, 2, token(51, 0), 10, 1014)
		}},
		{"which took less", "turn", func(b *book) {
			held(b)
			b.fault("partition", 4, 50, 60)
			strictly(b, 3, token(50, 0), 311, 1010)
			strictly(b, 2, token(51, 0), 10, 1014)
		}},
		{"nobody was cut off yet", "turn", func(b *book) {
			held(b)
			b.fault("partition", 4, 211, 220)
			strictly(b, 3, token(50, 0), 220, 1010)
			strictly(b, 2, token(51, 0), 110, 1014)
		}},
		{"nor any more", "turn", func(b *book) {
			held(b)
			b.fault("partition", 4, 50, 59)
			strictly(b, 3, token(50, 0), 220, 1010)
			strictly(b, 2, token(51, 0), 110, 1014)
		}},
		{"but just so", "", func(b *book) {
			held(b)
			b.fault("partition", 4, 50, 61)
			strictly(b, 3, token(50, 0), 220, 1010)
			strictly(b, 2, token(51, 0), 110, 1014)
		}},
	})
}

func TestTwoAtOnceAreTheLastLossesDoing(t *testing.T) {
	var b book
	b.held(1, token(1, 0), 1, 2, 0)
	b.acquired(2, token(2, 0), 9, 50)
	b.add(history.Event{Op: history.Fault, Name: "failover", Outage: true, Lossy: true, Call: at(5), Return: at(40)})
	b.wiped(60, 61)
	b.held(3, token(3, 0), 70, 71, 1)
	b.released(2, token(2, 0), 100, 101)
	b.held(1, token(4, 0), 110, 111, 2)
	if got := check.All(b.events, rules).Figures.Lost; got["flush"] != 1 || len(got) != 1 {
		t.Errorf("two at once: %v, want once by flush", got)
	}
}
