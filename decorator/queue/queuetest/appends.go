package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

var appendChecks = []check{
	{"ItemsAreInTheOrderOfAppends", nil, func(f *fixture) {
		h := f.open()
		ids, last := []string{"b", "a", "z", "10", "9"}, int64(0)
		for i, id := range ids {
			p := h.append(id)
			if p.Sequence <= last || p.Ahead != i {
				f.t.Errorf("the place of %q is %+v, after sequence %d; want a larger one, with %d ahead", id, p, last, i)
			}
			last = p.Sequence
		}
		for i, id := range ids {
			h.done(int64(i+1), h.begin(int64(i+1), id, 1))
		}
		if s := h.step(9); s.Item != nil || s.Left != 0 {
			f.t.Errorf("%+v when all has run", s)
		}
	}},
	{"OrderIsThatOfBothProcesses", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("1")
		p.append("2")
		h.append("3")
		for i, id := range []string{"1", "2", "3"} {
			p.done(int64(i+1), p.begin(int64(i+1), id, 1))
		}
	}},
	{"RepeatedAppendHasTheSamePlace", nil, func(f *fixture) {
		h, p := f.open(), f.peer()
		h.append("before")
		first := h.append("twice")
		same := func(when string) {
			f.t.Helper()
			if again := p.append("twice"); again.ID != first.ID || again.Sequence != first.Sequence {
				f.t.Errorf("%s: the place is %+v; want that of %+v", when, again, first)
			}
		}
		same("waiting")
		h.append("behind")
		same("with one behind it")
		i := h.begin(1, "before", 1)
		h.done(1, i)
		i = h.begin(2, "twice", 1)
		same("running")
		h.done(2, i)
		same("done")
		h.done(3, h.begin(3, "behind", 1))
		if s := h.none(h.step(4)); s.Left != 0 {
			f.t.Errorf("%d items are left; want none", s.Left)
		}
	}},
	{"SameIDOfAnotherKeyIsAnotherItem", nil, func(f *fixture) {
		h := f.open()
		a, b := h.append("1"), h.on(f.key+"2").append("1")
		if a.ID == b.ID || b.Ahead != 0 {
			f.t.Errorf("the places are %+v and %+v", a, b)
		}
	}},
	{"QueuesOfDifferentNamesAreApart", nil, func(f *fixture) {
		h := f.open()
		h.append("1")
		f.name += "2"
		other := f.open()
		other.none(other.step(7))
		other.mustClaim("worker")
		other.append("1")
		h.begin(1, "1", 1)
	}},
	{"FullQueueRefuses", nil, func(f *fixture) {
		h := f.open(maxLength(2))
		h.append("1")
		place := h.append("2")
		refused := func() {
			f.t.Helper()
			if p, err := h.q.Append(f.t.Context(), h.key, queue.New{ID: "one more"}); !errors.Is(err, queue.ErrFull) {
				f.t.Errorf("append to a full queue: %+v, %v; want queue.ErrFull", p, err)
			}
		}
		refused()
		if again := h.append("2"); again != place {
			f.t.Errorf("the place of an item that is there is %+v; want %+v", again, place)
		}
		h.on(f.key + "2").append("1")
		i := h.begin(1, "1", 1)
		refused()
		h.done(1, i)
		h.append("3")
		refused()
	}},
	{"AnythingMayBeAKeyAnIDOrAPayload", nil, func(f *fixture) {
		h := f.open(maxLength(1000))
		texts := []string{"a", ".", "..", " ", "a b", "{}", "{a}b", "*", "a\nb", "a\x00b", "\xff\xfe", "é", "0", "-1", "\r\n", "%", strings.Repeat("x", queue.MaxID)}
		for _, key := range append(slices.Clone(texts), strings.Repeat("k", queue.MaxKey)) {
			h := h.on(key)
			for i, id := range texts {
				p, err := h.q.Append(f.t.Context(), key, queue.New{ID: id, Payload: []byte(id), Trace: id})
				if err != nil || p.Ahead != i {
					f.t.Fatalf("append %.20q to %.20q: %+v, %v; want %d ahead", id, key, p, err, i)
				}
				if len(key) > 8 && strings.Contains(p.ID, key) && !strings.Contains(id, key) {
					f.t.Errorf("the place %q shows the key", p.ID)
				}
				h.mustBe(p.ID, queue.Waiting)
			}
			for i, id := range texts {
				s := h.step(int64(i + 1))
				if s.Item == nil || string(s.Item.Payload) != id || s.Item.Trace != id {
					f.t.Fatalf("begun was %+v; want %.20q", s, id)
				}
				h.mustBe(s.Item.ID, queue.Running)
				h.done(int64(i+1), *s.Item)
			}
		}
	}},
	{"PayloadOfAMegabyteComesBack", nil, func(f *fixture) {
		h := f.open()
		payload := []byte(strings.Repeat("0123456789abcde\n", 1<<16))
		payload = payload[:min(len(payload), f.h.maxPayload())] // the largest, if that is less
		if _, err := h.q.Append(f.t.Context(), h.key, queue.New{ID: "1", Payload: payload}); err != nil {
			f.t.Fatal(err)
		}
		if s := h.step(1); s.Item == nil || string(s.Item.Payload) != string(payload) {
			f.t.Error("the payload is another one")
		}
	}},
	{"PayloadBeyondTheLimitIsRefused", nil, func(f *fixture) {
		h := f.open()
		large := queue.New{ID: "1", Payload: make([]byte, f.h.maxPayload()+1)}
		if p, err := h.q.Append(f.t.Context(), h.key, large); err == nil {
			f.t.Errorf("a payload of %d bytes is accepted: %+v", len(large.Payload), p)
		}
		if p := h.append("1"); p.Ahead != 0 {
			f.t.Errorf("%d items are ahead of the first", p.Ahead)
		}
		h.begin(1, "1", 1)
	}},
	{"ItemOutOfBoundsIsRefused", nil, func(f *fixture) {
		h := f.open()
		for what, bad := range map[string]struct {
			key string
			n   queue.New
		}{
			"no key":       {"", queue.New{ID: "1"}},
			"a long key":   {strings.Repeat("k", queue.MaxKey+1), queue.New{ID: "1"}},
			"no ID":        {h.key, queue.New{}},
			"a long ID":    {h.key, queue.New{ID: strings.Repeat("i", queue.MaxID+1)}},
			"a long trace": {h.key, queue.New{ID: "1", Trace: strings.Repeat("t", queue.MaxID+1)}},
		} {
			if p, err := h.q.Append(f.t.Context(), bad.key, bad.n); err == nil {
				f.t.Errorf("an item with %s is accepted: %+v", what, p)
			}
		}
		h.mustClaim("worker")
		bad := h.holder(0)
		if _, err := h.q.Begin(f.t.Context(), bad); err == nil {
			f.t.Error("a token of 0 is accepted")
		}
	}},
	{"RulesThatCannotWorkAreRefused", nil, func(f *fixture) {
		for _, change := range []func(*queue.Rules){
			spaced(-1), spaced(5), attempts(0), maxLength(0), kept(long, 0), kept(0, 1), onDead(9),
		} {
			if _, err := f.h.Store.Open(f.name, rules(change)); err == nil {
				f.t.Errorf("%+v are accepted", rules(change))
			}
		}
	}},
	{"AppendsAtOnceGetDifferentPlaces", nil, func(f *fixture) {
		handles := []handle{f.open(), f.peer()}
		const each = 20
		var mu sync.Mutex
		taken := make(map[int64]string)
		var all sync.WaitGroup
		for n, h := range handles {
			for i := range each {
				all.Go(func() {
					id := fmt.Sprint(n, "-", i)
					p, err := h.q.Append(f.t.Context(), f.key, queue.New{ID: id, Payload: []byte(id)})
					if err != nil {
						f.t.Errorf("append: %v", err)
						return
					}
					mu.Lock()
					defer mu.Unlock()
					if other := taken[p.Sequence]; other != "" {
						f.t.Errorf("%s and %s have the sequence %d", other, id, p.Sequence)
					}
					taken[p.Sequence] = id
				})
			}
		}
		all.Wait()
		last := int64(0)
		for i := range int64(2 * each) {
			s := handles[0].step(i + 1)
			if s.Item == nil || s.Item.Sequence <= last || taken[s.Item.Sequence] != string(s.Item.Payload) {
				f.t.Fatalf("begun after %d: %+v", last, s)
			}
			last = s.Item.Sequence
			handles[0].done(i+1, *s.Item)
		}
	}},
}

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
