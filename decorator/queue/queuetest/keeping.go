package queuetest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

var keepingChecks = []check{
	{"UnknownItemIsUnknown", nil, func(f *fixture) {
		h := f.open()
		id := h.append("1").ID
		for _, unknown := range []string{"", ".", "1", id + "0", id[1:], "%"} {
			h.mustBeUnknown(unknown)
		}
	}},
	{"EndedItemsAreKeptAsManyAsTheRulesSay", nil, func(f *fixture) {
		h := f.open(kept(long, 2))
		var ids []string
		for n, id := range []string{"1", "2", "3"} {
			ids = append(ids, h.append(id).ID)
			h.done(int64(n+1), h.begin(int64(n+1), id, 1))
		}
		h.mustBeUnknown(ids[0])
		h.mustBe(ids[1], queue.Ended)
		h.mustBe(ids[2], queue.Ended)
		if s := h.none(h.step(4)); s.Left != 0 {
			f.t.Errorf("%d are left", s.Left)
		}
		h.append("2") // which is known
		h.append("1") // and which is not
		h.begin(5, "1", 1)
	}},
	{"EndedItemsAreKeptAsLongAsTheRulesSay", nil, func(f *fixture) {
		h := f.open(kept(queue.MinKeep, 100))
		id := h.append("1").ID
		h.append("2")
		began := time.Now()
		h.done(1, h.begin(1, "1", 1))
		f.until("the item to be forgotten", func() bool {
			_, err := h.q.Status(f.t.Context(), id)
			return errors.Is(err, queue.ErrUnknown)
		})
		if since := time.Since(began); since < queue.MinKeep {
			f.t.Errorf("the item is forgotten after %v; want %v", since, queue.MinKeep)
		}
		h.append("1")
		h.done(2, h.begin(2, "2", 1))
		h.begin(3, "1", 1)
	}},
	{"SequencesRiseWhenAnIdleKeyIsForgotten", nil, func(f *fixture) {
		h := f.open(kept(queue.MinKeep, 100))
		first := h.append("1")
		h.append("2")
		last := h.append("3")
		for n, id := range []string{"1", "2", "3"} {
			h.done(int64(n+1), h.begin(int64(n+1), id, 1))
		}
		h.on(f.key + "2").append("1")
		f.until("the items to be forgotten", func() bool {
			_, err := h.q.Status(f.t.Context(), last.ID)
			return errors.Is(err, queue.ErrUnknown)
		})
		if again := h.append("1"); again.ID != first.ID || again.Sequence <= last.Sequence || again.Ahead != 0 {
			f.t.Errorf("the place is %+v; want a sequence above %d", again, last.Sequence)
		}
		h.begin(4, "1", 1)
	}},
	{"WaitingItemsAreKeptForEver", nil, func(f *fixture) {
		h := f.open(kept(queue.MinKeep, 1))
		id := h.append("1").ID
		h.append("2")
		h.done(1, h.begin(1, "1", 1))
		other := h.on(f.key + "2")
		left := other.append("1").ID
		again := h.on(f.key + "3") // which was idle before
		again.append("1")
		again.done(1, again.begin(1, "1", 1))
		again.append("2")
		f.until("the item to be forgotten", func() bool {
			_, err := h.q.Status(f.t.Context(), id)
			return errors.Is(err, queue.ErrUnknown)
		})
		time.Sleep(queue.MinKeep)
		other.mustBe(left, queue.Waiting)
		again.mustNotBegin(1)
		again.begin(2, "2", 1)
		h.mustNotBegin(1)
		h.begin(2, "2", 1)
	}},
}

// heard is what a listener was told last.
type heard struct {
	mu sync.Mutex
	up int
	at map[int]time.Time // by shard: when it is due
}

func (f *fixture) listen(h handle) (l *heard, stop func()) {
	l = &heard{at: make(map[int]time.Time)}
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- h.q.Listen(ctx, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.up++
		}, func(shard int, in time.Duration) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.at[shard] = time.Now().Add(in)
		})
	}()
	f.until("the listener to hear", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.up > 0 })
	return l, func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			f.t.Errorf("listen ends with %v; want its context's error", err)
		}
	}
}

// hears waits until the listener was told of something that is due in that time, and forgets it.
func (f *fixture) hears(l *heard, what string, want time.Duration) {
	f.t.Helper()
	f.until("news of "+what, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		for shard, at := range l.at {
			if in := time.Until(at); in <= want && in > want-long/4 {
				delete(l.at, shard)
				return true
			}
		}
		return false
	})
}

var listenChecks = []check{
	{"ListenerHearsOfDueKeys", nil, func(f *fixture) {
		h, p := f.open(attempts(1), onDead(queue.Hold)), f.peer(attempts(1), onDead(queue.Hold))
		l, stop := f.listen(p)
		defer stop()
		id := h.append("1").ID
		f.hears(l, "an append", 0)
		h.mustClaim("a", f.key)
		h.claimAll(queue.ClaimRequest{Worker: "a", Return: []string{f.key}})
		f.hears(l, "a claim that was given up", 0)
		h.die(1, "1")
		h.resume(id, queue.Repeat)
		f.hears(l, "a key that goes on", 0)
		h.append("2")
		i := h.begin(2, "1", 1)
		h.done(2, i)
		f.hears(l, "an item behind one that has ended", 0)
	}},
	{"ListenerHearsWhenAKeyIsDue", nil, func(f *fixture) {
		h, p := f.open(spaced(long)), f.peer(spaced(long))
		h.append("1")
		h.done(1, h.begin(1, "1", 1))
		l, stop := f.listen(p)
		defer stop()
		h.append("2")
		f.hears(l, "an append", long)
	}},
}
