package queuetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockaround/lockaround/decorator/queue"
)

// lockedKey is a key with a lock in this process, and what has become of its items.
type lockedKey struct {
	lock     sync.Mutex
	key      string
	ended    []string // in order
	attempts map[string]int
}

// testWorkload appends and runs at once, by workers that take the lock of a key, die in the
// middle, and come late: whatever they do, each item ends once, in order, and no attempt goes
// uncounted.
func testWorkload(f *fixture) {
	const each, tries = 40, 50
	handles := []handle{f.open(attempts(tries)), f.peer(attempts(tries))}
	keys := make([]*lockedKey, 3)
	for i := range keys {
		keys[i] = &lockedKey{key: fmt.Sprint(f.key, "-", i), attempts: make(map[string]int)}
	}
	var tokens, left atomic.Int64
	left.Store(int64(each * len(keys)))
	var all sync.WaitGroup
	for n, k := range keys {
		all.Go(func() {
			for i := range each {
				h := handles[(n+i)%2].on(k.key)
				h.append(fmt.Sprint(i))
				if rand.IntN(4) == 0 {
					h.append(fmt.Sprint(i))
				}
			}
		})
	}
	byKey := func(key string) *lockedKey {
		for _, k := range keys {
			if k.key == key {
				return k
			}
		}
		f.t.Errorf("a claim names %q, which has no items", key)
		return nil
	}
	deadline := time.Now().Add(time.Minute)
	for w := range 4 {
		all.Go(func() {
			h := handles[w%2]
			for left.Load() > 0 && !f.t.Failed() {
				if time.Now().After(deadline) {
					f.t.Errorf("%d items have not ended after a minute", left.Load())
					return
				}
				claimed := 0
				for s := range h.q.Shards() {
					c, err := h.q.Claim(f.t.Context(), queue.ClaimRequest{Shard: s, Worker: fmt.Sprint("w", w), Max: 2, For: 5 * time.Millisecond})
					if err != nil {
						f.t.Errorf("claim: %v", err)
						return
					}
					for _, key := range c.Keys {
						claimed++
						if k := byKey(key); k != nil {
							left.Add(-k.work(h.on(key), tokens.Add, tries))
						}
					}
				}
				if claimed == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	all.Wait()
	for _, k := range keys {
		for i, id := range k.ended {
			if want := fmt.Sprint("payload of ", i); id != want {
				f.t.Fatalf("%d. of %q is %q; want %q", i, k.key, id, want)
			}
		}
		if len(k.ended) != each && !f.t.Failed() {
			f.t.Errorf("%d items have ended; want %d", len(k.ended), each)
		}
	}
}

// work is a worker's way with a key: it returns how many items have ended.
func (k *lockedKey) work(h handle, token func(int64) int64, tries int) (ended int64) {
	k.lock.Lock()
	locked := true
	defer func() {
		if locked {
			k.lock.Unlock()
		}
	}()
	mine := token(1)
	holder := h.holder(mine)
	holder.For = 5 * time.Millisecond
	s, err := h.q.Begin(h.t.Context(), holder)
	if err != nil {
		h.t.Errorf("begin: %v", err)
		return 0
	}
	for s.Item != nil {
		id := string(s.Item.Payload)
		k.begun(h, *s.Item)
		e := ending(*s.Item, queue.Done)
		e.Next = ended < 9 && rand.IntN(3) > 0
		mayDie := k.attempts[id] < tries-2
		switch dice := rand.IntN(10); {
		case dice == 0 && mayDie:
			return ended // dies
		case dice == 1 && mayDie:
			e.Outcome = queue.Retry
		case dice == 2 && mayDie:
			// Its lease is lost: somebody else may begin, and then its End is late.
			k.lock.Unlock()
			time.Sleep(time.Millisecond)
			k.lock.Lock()
			later := holder
			later.Token = token(1)
			switch s, err := h.q.Begin(h.t.Context(), later); {
			case err != nil:
				h.t.Errorf("begin: %v", err)
			case s.Item != nil:
				k.begun(h, *s.Item)
			}
			if _, err := h.q.End(h.t.Context(), holder, e); !errors.Is(err, queue.ErrSuperseded) {
				h.t.Errorf("late end: %v; want queue.ErrSuperseded", err)
			}
			return ended
		}
		if s, err = h.q.End(h.t.Context(), holder, e); err != nil {
			h.t.Errorf("end: %v", err)
			return ended
		}
		if e.Outcome == queue.Done {
			k.ended = append(k.ended, id)
			ended++
		}
	}
	return ended
}

// begun counts an attempt.
func (k *lockedKey) begun(h handle, i queue.Item) {
	id := string(i.Payload)
	if k.attempts[id]++; i.Attempt != k.attempts[id] {
		h.t.Errorf("attempt %d of %q is called %d", k.attempts[id], id, i.Attempt)
	}
}

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
