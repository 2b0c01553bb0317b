package queuetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

var claimChecks = []check{
	{"ClaimNamesTheKeysThatAreDue", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.mustClaim("a")
		h.append("1", "2")
		p.on(f.key + "2").append("1")
		p.mustClaim("a", f.key, f.key+"2")
	}},
	{"ClaimedKeyIsNotNamedAgain", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1")
		h.mustClaim("a", f.key)
		p.mustClaim("b")
		h.append("2")
		p.mustClaim("b")
		i := h.begin(1, "1", 1)
		p.mustClaim("b")
		h.end(1, queue.Ending{Sequence: i.Sequence, Attempt: 1, Outcome: queue.Done, Next: true})
		p.mustClaim("b")
	}},
	{"KeyIsDueAgainWhenItsHolderIsThrough", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1", "2")
		h.mustClaim("a", f.key)
		h.done(1, h.begin(1, "1", 1))
		p.mustClaim("b", f.key)
		p.done(2, p.begin(2, "2", 1))
		h.mustClaim("a")
		h.append("3")
		h.mustClaim("a", f.key)
	}},
	{"ClaimEnds", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1")
		h.claimAll(queue.ClaimRequest{Worker: "a", Max: 1, For: short})
		f.until("the claim to end", func() bool {
			return slices.Equal(p.claimAll(queue.ClaimRequest{Worker: "b", Max: 9}), []string{f.key})
		})
		h.mustClaim("a")
	}},
	{"ClaimOfARunEnds", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1")
		h.mustClaim("a", f.key)
		holder := h.holder(1)
		holder.For = short
		if _, err := h.q.Begin(f.t.Context(), holder); err != nil {
			f.t.Fatal(err)
		}
		f.until("the claim to end", func() bool {
			return slices.Equal(p.claimAll(queue.ClaimRequest{Worker: "b", Max: 9}), []string{f.key})
		})
	}},
	{"ClaimIsProlonged", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1")
		h.claimAll(queue.ClaimRequest{Worker: "a", Max: 1, For: short})
		h.claimAll(queue.ClaimRequest{Worker: "a", Max: 0, Keep: []string{f.key, f.key + "unknown"}, For: long})
		p.claimAll(queue.ClaimRequest{Worker: "b", Max: 0, Keep: []string{f.key}, For: time.Millisecond}) // not b's
		time.Sleep(2 * short)
		p.mustClaim("b")
	}},
	{"ClaimIsGivenUp", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1")
		h.mustClaim("a", f.key)
		p.claimAll(queue.ClaimRequest{Worker: "b", Return: []string{f.key}}) // not b's
		p.mustClaim("b")
		h.claimAll(queue.ClaimRequest{Worker: "a", Return: []string{f.key, f.key + "unknown"}})
		p.mustClaim("b", f.key)
	}},
	{"ClaimNamesAtMostMax", nil, func(f *fixture) {
		h := f.open()
		var want, got []string
		for i := range 20 {
			key := fmt.Sprint(f.key, i)
			want = append(want, key)
			h.on(key).append("1")
		}
		for range 20 * h.q.Shards() {
			got = append(got, h.claimAll(queue.ClaimRequest{Max: 1})...)
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			f.t.Errorf("claimed %q; want each once", got)
		}
	}},
	{"ClaimSaysWhenTheNextKeyIsDue", nil, func(f *fixture) {
		h := f.open(spaced(long))
		next := func() time.Duration {
			n := time.Duration(-1)
			for s := range h.q.Shards() {
				if c := h.claim(queue.ClaimRequest{Shard: s}); c.Next >= 0 && (n < 0 || c.Next < n) {
					n = c.Next
				}
			}
			return n
		}
		if n := next(); n >= 0 {
			f.t.Errorf("the next key of an empty queue is due in %v", n)
		}
		h.append("1", "2")
		if n := next(); n != 0 {
			f.t.Errorf("the next key is due in %v; want 0", n)
		}
		h.mustClaim("a", f.key)
		if n := next(); n < long/2 || n > long {
			f.t.Errorf("the next claim ends in %v; want %v", n, long)
		}
		h.done(1, h.begin(1, "1", 1))
		if n := next(); n < long/2 || n > long {
			f.t.Errorf("the next key is due in %v; want %v", n, long)
		}
		h.mustClaim("a")
	}},
	{"StatsCountWhatIsThere", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Hold)), f.peer(attempts(1), onDead(queue.Hold))
		counts := func(length, parked int) {
			f.t.Helper()
			s, err := p.q.Stats(f.t.Context())
			if err != nil || s.Length != length || s.Parked != parked || (s.Oldest > 0) != (length > 0) {
				f.t.Errorf("stats are %+v, %v; want %d items, %d keys parked", s, err, length, parked)
			}
		}
		counts(0, 0)
		h.append("1", "2")
		other := h.on(f.key + "2")
		other.append("1")
		time.Sleep(2 * time.Millisecond)
		counts(3, 0)
		i := h.begin(1, "1", 1)
		counts(3, 0)
		h.done(1, i)
		counts(2, 0)
		other.end(1, ending(other.begin(1, "1", 1), queue.Dead))
		counts(2, 1)
		h.done(2, h.begin(2, "2", 1))
		if err := h.q.Resume(f.t.Context(), h.parkedID(), queue.GoOn); err != nil {
			f.t.Error(err)
		}
		counts(0, 0)
	}},
}

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
