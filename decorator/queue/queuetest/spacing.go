package queuetest

import (
	"slices"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// waits fails the check unless the key is due in about that long, and not before.
func (h handle) waits(s queue.Step, want time.Duration) {
	h.t.Helper()
	h.none(s)
	if s.In > want || s.In < want-long/4 {
		h.t.Errorf("the key is due in %v; want %v", s.In, want)
	}
	h.mustClaim("worker")
}

var spacingChecks = []check{
	{"NextStartWaitsForTheSpacing", nil, func(f *fixture) {
		h, p := f.open(spaced(long)), f.peer(spaced(long))
		h.append("1", "2")
		e := ending(h.begin(1, "1", 1), queue.Done)
		e.Next = true
		h.waits(h.end(1, e), long)
		p.waits(p.step(2), long)
		h.on(f.key + "2").append("1")
		p.mustClaim("worker", f.key+"2") // which keeps nobody else waiting
	}},
	{"SpacingSurvivesACrash", nil, func(f *fixture) {
		h, p := f.open(spaced(long)), f.peer(spaced(long))
		h.append("1")
		h.begin(1, "1", 1) // and dies
		p.waits(p.step(2), long)
	}},
	{"SpacingCountsWhenTheKeyWasIdle", nil, func(f *fixture) {
		h, p := f.open(spaced(long)), f.peer(spaced(long))
		h.append("1")
		h.done(1, h.begin(1, "1", 1))
		p.append("2")
		p.waits(p.step(2), long)
	}},
	{"SpacingIsFromStartToStart", nil, func(f *fixture) {
		h := f.open(spaced(short))
		h.append("1", "2")
		began := time.Now()
		i := h.begin(1, "1", 1)
		time.Sleep(2 * short)
		e := ending(i, queue.Done)
		e.Next = true
		h.is(h.end(1, e), "2", 1)
		if since := time.Since(began); since < short {
			f.t.Errorf("the second item was begun after %v", since)
		}
	}},
	{"ItemIsDueWhenTheSpacingIsOver", nil, func(f *fixture) {
		h := f.open(spaced(short))
		h.append("1", "2")
		began := time.Now()
		h.done(1, h.begin(1, "1", 1))
		f.until("the key to be due", func() bool {
			return slices.Equal(h.claimAll(queue.ClaimRequest{Max: 9}), []string{f.key})
		})
		h.begin(2, "2", 1)
		if since := time.Since(began); since < short {
			f.t.Errorf("the second item was begun after %v; want %v or more", since, short)
		}
	}},
	{"LateStartPutsTheNextOff", nil, func(f *fixture) {
		h := f.open(spaced(long))
		h.append("1", "2")
		e := ending(h.begin(1, "1", 1), queue.Done)
		e.Late, e.Next = long, true
		h.waits(h.end(1, e), 2*long)
	}},
	{"CrashedRunMayHaveStartedWithinItsGrace", nil, func(f *fixture) {
		h := f.open(spaced(long))
		h.append("1", "2")
		holder := h.holder(1)
		holder.Grace = long
		s, err := h.q.Begin(f.t.Context(), holder)
		if err != nil {
			f.t.Fatal(err)
		}
		i := h.is(s, "1", 1)
		h.done(1, i) // it did not, and was not late
		h.waits(h.step(2), long)

		h = h.on(f.key + "2")
		h.append("1")
		holder.Key = h.key
		if _, err := h.q.Begin(f.t.Context(), holder); err != nil {
			f.t.Fatal(err)
		}
		h.waits(h.step(2), 2*long)
	}},
	{"RepeatedBeginStartsTheSpacingAnew", nil, func(f *fixture) {
		h := f.open(spaced(2 * short))
		h.append("1", "2")
		h.begin(1, "1", 1)
		time.Sleep(short)
		began := time.Now()
		h.done(1, h.begin(1, "1", 1))
		token := int64(1)
		f.until("the next item", func() bool { token++; return h.step(token).Item != nil })
		if since := time.Since(began); since < 2*short {
			f.t.Errorf("the second item was begun after %v; want %v or more", since, 2*short)
		}
	}},
	{"RetryWaitsForItsPause", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1", "2")
		e := ending(h.begin(1, "1", 1), queue.Retry)
		e.After, e.Next = long, true
		h.waits(h.end(1, e), long)
		p.waits(p.step(2), long)
		h.on(f.key + "2").append("1")
		p.mustClaim("worker", f.key+"2")
	}},
	{"RetryIsDueWhenItsPauseIsOver", nil, func(f *fixture) {
		h := f.open()
		h.append("1")
		e := ending(h.begin(1, "1", 1), queue.Retry)
		e.After = short
		h.end(1, e)
		f.until("the key to be due", func() bool {
			return slices.Equal(h.claimAll(queue.ClaimRequest{Max: 9}), []string{f.key})
		})
		// A claim may go by an estimate of the store's clock. Then In is 0, and a worker begins again.
		var s queue.Step
		f.until("the item to be begun", func() bool { s = h.step(2); return s.Item != nil || s.In > 0 })
		h.is(s, "1", 2)
	}},
	{"PauseIsNoLessThanTheSpacing", nil, func(f *fixture) {
		h := f.open(spaced(long))
		h.append("1")
		e := ending(h.begin(1, "1", 1), queue.Retry)
		e.After = short
		h.waits(h.end(1, e), long)
	}},
}
