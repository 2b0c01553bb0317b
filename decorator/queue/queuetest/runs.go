package queuetest

import (
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
