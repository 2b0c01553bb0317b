package queuetest

import (
	"errors"

	"github.com/lockaround/lockaround/decorator/queue"
)

var failureChecks = []check{
	{"AppendSurvivesALostReply", needs(losing), func(f *fixture) {
		h := f.open()
		lost := f.losing()
		_, _ = h.q.Append(f.t.Context(), f.key, queue.New{ID: "1", Payload: []byte("payload of 1")}) // whether it knows is its own
		lost()
		h.append("1")
		h.append("2")
		h.done(1, h.begin(1, "1", 1))
		h.begin(2, "2", 1)
	}},
	{"ClaimSurvivesALostReply", needs(losing), func(f *fixture) {
		h := f.open()
		h.append("1")
		h.claimAll(queue.ClaimRequest{Worker: "a"})
		for s := range h.q.Shards() {
			lost := f.losing()
			_, _ = h.q.Claim(f.t.Context(), queue.ClaimRequest{Shard: s, Worker: "a", Max: 1, For: short})
			lost()
		}
		f.until("the claim to end", func() bool { return len(h.claimAll(queue.ClaimRequest{Worker: "a", Max: 1})) == 1 })
	}},
	{"BeginSurvivesALostReply", needs(losing), func(f *fixture) {
		h := f.open()
		h.append("1", "2")
		lost := f.losing()
		_, err := h.q.Begin(f.t.Context(), h.holder(1))
		lost()
		if errors.Is(err, queue.ErrSuperseded) {
			f.t.Errorf("begin without a reply: %v", err)
		}
		h.done(1, h.begin(1, "1", 1))
		h.begin(2, "2", 1)
	}},
	{"EndSurvivesALostReply", needs(losing), func(f *fixture) {
		for n, next := range []bool{false, true} {
			h := f.open().on(f.key + string(rune('a'+n)))
			h.append("1", "2", "3")
			e := ending(h.begin(1, "1", 1), queue.Done)
			e.Next = next
			lost := f.losing()
			_, err := h.q.End(f.t.Context(), h.holder(1), e)
			lost()
			if errors.Is(err, queue.ErrSuperseded) {
				f.t.Errorf("end without a reply: %v", err)
			}
			s := h.end(1, e)
			if next {
				h.done(1, h.is(s, "2", 1))
			} else {
				h.none(s)
				h.done(2, h.begin(2, "2", 1))
			}
			h.begin(3, "3", 1)
		}
	}},
}

// losing loses the reply to the next request; the function returned fails the check if none
// was lost, because it has then tested nothing.
func (f *fixture) losing() (wasLost func()) {
	lost := f.h.LoseReply()
	return func() {
		f.t.Helper()
		if !lost() {
			f.t.Fatal("the harness did not lose the reply, so nothing was tested")
		}
	}
}
