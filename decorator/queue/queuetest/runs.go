package queuetest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lockaround/lockaround/decorator/queue"
)

var beginChecks = []check{
	{"BeginCountsTheAttempt", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		id := h.append("1").ID
		h.begin(1, "1", 1)
		if s := p.mustBe(id, queue.Running); s.Attempts != 1 {
			f.t.Errorf("%d attempts are counted in the first run", s.Attempts)
		}
		p.begin(2, "1", 2) // the first one has died
		h.begin(3, "1", 3)
		if s := p.mustBe(id, queue.Running); s.Attempts != 3 {
			f.t.Errorf("%d attempts are counted in the third run", s.Attempts)
		}
	}},
	{"RepeatedBeginIsTheSameRun", nil, func(f *fixture) {
		h := f.open()
		h.append("1", "2")
		first := h.begin(7, "1", 1)
		again := h.begin(7, "1", 1)
		if first.ID != again.ID || first.Sequence != again.Sequence {
			f.t.Errorf("begun were %+v and %+v", first, again)
		}
		h.done(7, first)
		h.begin(8, "2", 1)
	}},
	{"SmallerTokenIsRefused", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1", "2")
		p.begin(6, "1", 1)
		h.mustNotBegin(5)
		i := p.begin(7, "1", 2)
		h.mustNotBegin(6)
		h.mustNotEnd(6, ending(i, queue.Done))
		p.done(7, i)
		h.mustNotBegin(6)
		h.mustNotEnd(5, ending(i, queue.Done))
	}},
	{"TokenIsKeptWhenNothingIsDue", nil, func(f *fixture) {
		h := f.open()
		h.append("1")
		h.done(5, h.begin(5, "1", 1))
		h.none(h.step(9))
		h.append("2")
		h.mustNotBegin(8)
		h.begin(10, "2", 1)
	}},
	{"LateCopyOfABeginIsRefused", nil, func(f *fixture) {
		h := f.open()
		h.append("1", "2")
		h.done(5, h.begin(5, "1", 1))
		h.mustNotBegin(5)
		h.begin(6, "2", 1)
	}},
	{"LateCopyOfABeginThatFoundNothingBeginsNothing", nil, func(f *fixture) {
		h := f.open(spaced(short))
		h.append("1")
		h.done(5, h.begin(5, "1", 1))
		h.append("2")
		if h.step(6).Item != nil {
			return // the machine is so slow that it is due already
		}
		f.until("the key to be due", func() bool {
			return slices.Equal(h.claimAll(queue.ClaimRequest{Max: 9}), []string{f.key})
		})
		if s := h.none(h.step(6)); s.Left != 1 {
			f.t.Errorf("%d are left; want 1", s.Left)
		}
		h.mustNotBegin(5)
		h.begin(7, "2", 1)
	}},
	{"TokensAreComparedExactly", nil, func(f *fixture) {
		h := f.open(attempts(100))
		h.append("1")
		last := int64(0)
		for n, token := range []int64{1, 9, 10, 99, 1 << 31, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, 1<<60 + 1, 1<<60 + 2, math.MaxInt64 - 1, math.MaxInt64} {
			i := h.begin(token, "1", n+1)
			if last > 0 {
				h.mustNotBegin(last)
				h.mustNotEnd(last, ending(i, queue.Done))
			}
			last = token
		}
	}},
	{"NothingIsBegunOfAnIdleKey", nil, func(f *fixture) {
		h := f.open()
		if s := h.none(h.step(1)); s.Left != 0 || s.Parked {
			f.t.Errorf("%+v of a key that nobody has used", s)
		}
	}},
}

var endChecks = []check{
	{"DoneItemIsOver", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		id := h.append("1").ID
		p.mustBe(id, queue.Waiting)
		i := h.begin(1, "1", 1)
		if i.ID != id {
			f.t.Errorf("the item begun is called %q; want %q", i.ID, id)
		}
		p.mustBe(id, queue.Running)
		if s := h.done(1, i); s.Left != 0 || s.Died != 0 {
			f.t.Errorf("%+v after the last one", s)
		}
		if s := p.mustBe(id, queue.Ended); s.Sequence != i.Sequence || s.Attempts != 1 {
			f.t.Errorf("%+v", s)
		}
		p.none(p.step(2))
	}},
	{"EndBeginsTheNext", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1", "2", "3")
		i := h.begin(4, "1", 1)
		for n, id := range []string{"2", "3"} {
			e := ending(i, queue.Done)
			e.Next = true
			s := h.end(4, e)
			if s.Left != 2-n {
				f.t.Errorf("%d are left; want %d", s.Left, 2-n)
			}
			i = h.is(s, id, 1)
			p.mustBe(i.ID, queue.Running)
		}
		e := ending(i, queue.Done)
		e.Next = true
		if s := h.none(h.end(4, e)); s.Left != 0 {
			f.t.Errorf("%d are left; want none", s.Left)
		}
		h.mustNotBegin(4)
	}},
	{"RepeatedEndSaysTheSame", nil, func(f *fixture) {
		h := f.open()
		h.append("1", "2", "3")
		i := h.begin(4, "1", 1)
		e := ending(i, queue.Done)
		e.Next = true
		h.is(h.end(4, e), "2", 1)
		second := h.is(h.end(4, e), "2", 1)
		h.done(4, second)
		if s := h.none(h.done(4, second)); s.Left != 1 {
			f.t.Errorf("%d are left; want 1", s.Left)
		}
		h.mustNotEnd(4, e) // not its last one
		h.begin(5, "3", 1)
		h.mustNotEnd(4, ending(second, queue.Done))
		h.mustNotEnd(5, ending(second, queue.Done))
	}},
	{"LateEndIsRefused", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		id := h.append("1").ID
		h.append("2")
		late := h.begin(1, "1", 1)
		i := p.begin(2, "1", 2)
		h.mustNotEnd(1, ending(late, queue.Done))
		p.mustBe(id, queue.Running)
		e := ending(late, queue.Done)
		e.Next = true
		h.mustNotEnd(1, e)
		h.mustNotEnd(1, ending(late, queue.Dead))
		p.done(2, i)
		h.mustNotEnd(1, ending(late, queue.Done))
		p.begin(3, "2", 1)
	}},
	{"EndOfALostLeaseCountsIfNobodyHasBegun", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		id := h.append("1").ID
		i := h.begin(1, "1", 1)
		h.done(1, i) // its lease may be over: nobody else was there
		p.mustBe(id, queue.Ended)
		p.none(p.step(2))
	}},
	{"EndNamesItsRun", nil, func(f *fixture) {
		h := f.open()
		h.append("1", "2")
		h.mustNotEnd(1, queue.Ending{Sequence: 1, Attempt: 1})
		i := h.begin(1, "1", 1)
		h.mustNotEnd(2, ending(i, queue.Done))
		for _, e := range []queue.Ending{{Sequence: i.Sequence + 1, Attempt: 1}, {Sequence: i.Sequence - 1, Attempt: 1}, {Sequence: i.Sequence, Attempt: 2}, {Sequence: i.Sequence, Attempt: 0}} {
			h.mustNotEnd(1, e)
		}
		h.mustBe(i.ID, queue.Running)
		h.done(1, i)
	}},
	{"RetriedItemStaysTheFirst", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		id := h.append("1").ID
		h.append("2")
		if s := h.end(1, ending(h.begin(1, "1", 1), queue.Retry)); s.Left != 2 || s.Died != 0 {
			f.t.Errorf("%+v after a failure", s)
		}
		if s := p.mustBe(id, queue.Waiting); s.Attempts != 1 {
			f.t.Errorf("%d attempts are counted; want 1", s.Attempts)
		}
		i := p.begin(2, "1", 2)
		e := ending(i, queue.Retry)
		e.Next = true
		p.is(p.end(2, e), "1", 3)
		i = p.is(p.end(2, e), "1", 3) // a repetition
		p.done(2, i)
		p.begin(3, "2", 1)
	}},
}

// parkedID is the first item of the only parked key.
func (h handle) parkedID() string {
	h.t.Helper()
	all, err := h.q.Parked(h.t.Context(), 10)
	if err != nil || len(all) != 1 {
		h.t.Fatalf("parked are %+v, %v; want one key", all, err)
	}
	return all[0].ID
}

func (h handle) resume(id string, how queue.Resumption) {
	h.t.Helper()
	if err := h.q.Resume(h.t.Context(), id, how); err != nil {
		h.t.Fatalf("%v: %v", how, err)
	}
}

// die has the first item die by its last failure, after its first run.
func (h handle) die(token int64, id string) queue.Step {
	h.t.Helper()
	return h.end(token, ending(h.begin(token, id, 1), queue.Retry))
}

var deathChecks = []check{
	{"LastFailureIsDeath", nil, func(f *fixture) {
		h, p := f.open(attempts(2)), f.peer(attempts(2))
		id := h.append("1").ID
		h.append("2")
		h.end(1, ending(h.begin(1, "1", 1), queue.Retry))
		e := ending(h.begin(2, "1", 2), queue.Retry)
		e.Next = true
		s := h.end(2, e)
		if s.Died != 1 || s.Left != 1 {
			f.t.Errorf("%+v after the last attempt; want 1 that died and 1 left", s)
		}
		h.is(s, "2", 1)
		p.mustBe(id, queue.GivenUp)
	}},
	{"DeathIsForTheFunctionToSay", nil, func(f *fixture) {
		h := f.open()
		id := h.append("1").ID
		if s := h.end(1, ending(h.begin(1, "1", 1), queue.Dead)); s.Died != 1 || s.Left != 0 {
			f.t.Errorf("%+v; want 1 that died", s)
		}
		h.mustBe(id, queue.GivenUp)
	}},
	{"CrashLoopEnds", nil, func(f *fixture) {
		h, p := f.open(attempts(3)), f.peer(attempts(3))
		id := h.append("1").ID
		h.append("2")
		for n := range 3 {
			h.begin(int64(n+1), "1", n+1) // and dies
		}
		s := p.step(4)
		if s.Died != 1 {
			f.t.Errorf("%d have died; want 1", s.Died)
		}
		p.is(s, "2", 1)
		h.mustBe(id, queue.GivenUp)
	}},
	{"HoldParksTheKey", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Hold)), f.peer(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		behind := h.append("2").ID
		other := h.on(f.key + "2")
		other.append("1")
		if s := h.die(1, "1"); !s.Parked || s.Died != 1 || s.Left != 2 {
			f.t.Errorf("%+v; want the key parked, with 2 left", s)
		}
		if s := p.mustBe(id, queue.GivenUp); !s.Parked {
			f.t.Errorf("%+v; want it parked", s)
		}
		if s := p.mustBe(behind, queue.Waiting); s.Ahead != 1 {
			f.t.Errorf("%d are ahead; want 1", s.Ahead)
		}
		if s := p.none(p.step(2)); !s.Parked {
			f.t.Errorf("%+v; want the key parked", s)
		}
		p.append("3")
		p.mustClaim("worker", f.key+"2")
		all, err := p.q.Parked(f.t.Context(), 10)
		if err != nil || len(all) != 1 || all[0].ID != id || all[0].Key != f.key || all[0].Left != 3 || all[0].Since.IsZero() {
			f.t.Errorf("parked are %+v, %v", all, err)
		}
		if all, err := p.q.Parked(f.t.Context(), 0); err != nil || len(all) != 0 {
			f.t.Errorf("parked are %+v, %v; want none of none", all, err)
		}
		other.begin(1, "1", 1)
	}},
	{"CrashLoopParksTheKey", nil, func(f *fixture) {
		h := f.open(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		h.begin(1, "1", 1) // and dies
		if s := h.none(h.step(2)); !s.Parked || s.Died != 1 {
			f.t.Errorf("%+v; want the key parked", s)
		}
		h.mustClaim("worker")
		h.resume(id, queue.Repeat)
		h.mustClaim("worker", f.key)
		h.begin(3, "1", 1)
	}},
	{"OperatorLetsTheKeyGoOn", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Hold)), f.peer(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		h.append("2")
		h.die(1, "1")
		p.resume(id, queue.GoOn)
		if s := h.mustBe(id, queue.GivenUp); s.Parked {
			f.t.Errorf("%+v; want it parked no more", s)
		}
		h.mustClaim("worker", f.key)
		h.done(2, h.begin(2, "2", 1))
		if p := h.append("1"); p.ID != id || h.none(h.step(3)).Left != 0 {
			f.t.Error("an item that is dead was appended again")
		}
	}},
	{"OperatorDropsTheItem", nil, func(f *fixture) {
		h := f.open(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		h.append("2")
		h.die(1, "1")
		h.resume(id, queue.Drop)
		h.mustBeUnknown(id)
		h.mustClaim("worker", f.key)
		h.done(2, h.begin(2, "2", 1))
		h.append("1")
		h.begin(3, "1", 1)
	}},
	{"OperatorRepeatsTheItem", nil, func(f *fixture) {
		h := f.open(attempts(2), onDead(queue.Hold))
		id := h.append("1").ID
		h.append("2")
		h.end(1, ending(h.begin(1, "1", 1), queue.Dead))
		h.resume(id, queue.Repeat)
		if s := h.mustBe(id, queue.Waiting); s.Attempts != 0 {
			f.t.Errorf("%d attempts are counted; want none", s.Attempts)
		}
		h.mustClaim("worker", f.key)
		h.end(2, ending(h.begin(2, "1", 1), queue.Retry))
		h.done(3, h.begin(3, "1", 2))
		h.begin(4, "2", 1)
	}},
	{"OnlyAParkedKeyIsResumed", nil, func(f *fixture) {
		h := f.open(attempts(1), onDead(queue.Hold))
		id := h.append("1").ID
		behind := h.append("2").ID
		refused := func(id string, want error) {
			f.t.Helper()
			for _, how := range []queue.Resumption{queue.GoOn, queue.Drop, queue.Repeat} {
				if err := h.q.Resume(f.t.Context(), id, how); !errors.Is(err, want) {
					f.t.Errorf("%v: %v; want %v", how, err, want)
				}
			}
		}
		refused(id, queue.ErrNotParked)
		h.die(1, "1")
		refused(behind, queue.ErrNotParked)
		refused(id+"?", queue.ErrUnknown)
		refused("", queue.ErrUnknown)
		h.resume(id, queue.GoOn)
		refused(id, queue.ErrNotParked)
		h.begin(2, "2", 1)
		refused(behind, queue.ErrNotParked)
	}},
	{"CascadeEndsWhatIsBehind", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Cascade)), f.peer(attempts(1), onDead(queue.Cascade))
		ids := []string{h.append("1").ID, h.append("2").ID, h.append("3").ID}
		h.on(f.key + "2").append("1")
		if s := h.die(1, "1"); s.Died != 3 || s.Left != 0 {
			f.t.Errorf("%+v; want 3 that died", s)
		}
		for _, id := range ids {
			p.mustBe(id, queue.GivenUp)
		}
		p.mustClaim("worker", f.key+"2")
		h.append("4")
		h.begin(2, "4", 1)
	}},
	{"CascadeOfManyIsOneDeathThatAnyWorkerEnds", nil, func(f *fixture) {
		const many = 1100 // more than a store may remove in one step
		r := []func(*queue.Rules){attempts(1), onDead(queue.Cascade), maxLength(2 * many), kept(long, 3*many)}
		h, p := f.open(r...), f.peer(r...)
		ids := make([]string, many)
		for n := range ids {
			ids[n] = h.append(fmt.Sprint(n)).ID
		}
		if s := h.die(1, "0"); s.Died != many || s.Left != 0 {
			f.t.Errorf("%+v; want %d that died", s, many) // and this worker dies
		}
		p.mustBe(ids[0], queue.GivenUp)
		p.mustBe(ids[1], queue.GivenUp)
		p.mustBe(ids[many-1], queue.GivenUp)
		if again := p.append(fmt.Sprint(many - 1)); again.ID != ids[many-1] || again.Ahead != 0 {
			f.t.Errorf("a dead item's place is %+v", again)
		}
		if later := p.append("later"); later.Ahead != 0 {
			f.t.Errorf("%d are ahead of the first that is alive", later.Ahead)
		}
		if s, err := p.q.Stats(f.t.Context()); err != nil || s.Length != 1 {
			f.t.Errorf("%+v, %v; want 1 item", s, err)
		}
		var s queue.Step
		for token := int64(2); s.Item == nil; token++ {
			if token > many {
				f.t.Fatal("what came after the death is never begun")
			}
			p.mustClaim("worker", f.key)
			if s = p.step(token); s.Left != 1 || s.Died != 0 || s.In != 0 {
				f.t.Fatalf("%+v; want the item that is left, or that the key is due", s)
			}
			if s.Item != nil {
				p.is(s, "later", 1)
				p.done(token, *s.Item)
			}
		}
		p.mustClaim("worker")
		for _, id := range ids {
			p.mustBe(id, queue.GivenUp)
		}
	}},
}
