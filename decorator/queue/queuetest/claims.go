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
