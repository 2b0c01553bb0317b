package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// slowWire answers a batch when it is told to, or when its time is up.
type slowWire struct {
	wire
	batches chan []command
	answer  chan struct{}
	running atomic.Int32
}

func (w *slowWire) run(ctx context.Context, cmds []command) []reply {
	w.running.Add(1)
	defer w.running.Add(-1)
	w.batches <- slices.Clone(cmds)
	rs := make([]reply, len(cmds))
	select {
	case <-w.answer:
		for i, c := range cmds {
			rs[i].status, rs[i].token = statusGranted, c.token
		}
	case <-ctx.Done():
		for i := range rs {
			rs[i].err = ctx.Err()
		}
	}
	return rs
}

type testLane struct {
	*lane
	wire    *slowWire
	workers sync.WaitGroup
	sent    int64 // the last call's token
}

func newTestLane(ctx context.Context) *testLane {
	l := &testLane{wire: &slowWire{batches: make(chan []command, 1024), answer: make(chan struct{})}}
	l.lane = newLane(ctx, l.wire, &l.workers)
	return l
}

// told counts what calls were told.
type told struct {
	granted, silent, canceled, never, wrong atomic.Int32
}

// add sends n calls of one command each. Each has to be told what its own command was
// answered.
func (l *testLane) add(ctx context.Context, n int, bound time.Duration) *told {
	got := new(told)
	for range n {
		l.sent++
		want := l.sent
		l.enqueue(ctx, bound, []command{{op: opVote, token: want}}, func(rs []reply) {
			r := rs[0]
			switch {
			case len(rs) != 1 || r.sent.IsZero() || r.err == nil && r.token != want:
				got.wrong.Add(1)
			case r.err == nil:
				got.granted.Add(1)
			case isTimeout(r.err):
				got.silent.Add(1)
			case errors.Is(r.err, context.Canceled):
				got.canceled.Add(1)
			}
			if r.neverRun {
				got.never.Add(1)
			}
		})
	}
	return got
}

// occupy has each worker send a call, and returns what the last one was told.
func (l *testLane) occupy(t *testing.T) (last *told) {
	for range laneWidth {
		last = l.add(t.Context(), 1, time.Minute)
		synctest.Wait()
	}
	return last
}

// expect compares what calls were told.
func (got *told) expect(t *testing.T, what string, granted, silent, canceled, never int32) {
	t.Helper()
	if g, s, c, n, w := got.granted.Load(), got.silent.Load(), got.canceled.Load(), got.never.Load(), got.wrong.Load(); g != granted || s != silent || c != canceled || n != never || w != 0 {
		t.Errorf("%s: %d granted, %d silent, %d canceled, %d never sent, %d wrong; want %d, %d, %d, %d and 0",
			what, g, s, c, n, w, granted, silent, canceled, never)
	}
}

func TestCallsAreSentAloneWhenFewAndTogetherWhenMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t.Context())
		first := l.occupy(t)
		many := l.add(t.Context(), 50, time.Minute)
		synctest.Wait()
		for range laneWidth {
			if n := len(<-l.wire.batches); n != 1 {
				t.Errorf("a batch of %d while workers were free", n)
			}
		}
		l.wire.answer <- struct{}{}
		synctest.Wait()
		if n := len(<-l.wire.batches); n != 50 {
			t.Errorf("a batch of %d of the 50 that had queued up", n)
		}
		close(l.wire.answer)
		l.workers.Wait()
		first.expect(t, "alone", 1, 0, 0, 0)
		many.expect(t, "together", 50, 0, 0, 0)
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t.Context())
		l.occupy(t)
		got := l.add(t.Context(), 3*maxBatch, time.Minute)
		close(l.wire.answer)
		l.workers.Wait()
		for len(l.wire.batches) > 0 {
			if n := len(<-l.wire.batches); n > maxBatch {
				t.Errorf("a batch of %d", n)
			}
		}
		got.expect(t, "all", 3*maxBatch, 0, 0, 0)
	})
}

func TestStuckBatchesGiveWayUpToABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t.Context())
		const bound = time.Second
		// A call with a long bound keeps each of the first batches under way.
		for range laneWidth + 2*maxOverdue {
			l.add(t.Context(), 1, bound)
			l.add(t.Context(), 1, time.Hour)
			time.Sleep(2 * bound)
		}
		if n := l.wire.running.Load(); n != laneWidth+maxOverdue {
			t.Errorf("%d batches under way; %d and %d overdue ones may be", n, laneWidth, maxOverdue)
		}
		close(l.wire.answer)
		l.workers.Wait()
		if l.active != 0 || l.overdue != 0 || len(l.queue)+len(l.underWay) != 0 {
			t.Errorf("%d workers, %d overdue ones, %d calls and %d batches, when all is over", l.active, l.overdue, len(l.queue), len(l.underWay))
		}
	})
}

// TestLateBatchIsReplacedAsSoonAsThereIsRoom has more batches stuck than may be overdue, of which
// those end first that are.
func TestLateBatchIsReplacedAsSoonAsThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t.Context())
		const bound = time.Second
		for range laneWidth + maxOverdue {
			l.add(t.Context(), 1, bound)
			l.add(t.Context(), 1, time.Hour)
			time.Sleep(2 * bound)
		}
		waiting := l.add(t.Context(), 1, time.Minute)
		synctest.Wait()
		if n := len(l.queue); n != 1 {
			t.Fatalf("%d calls wait; want 1", n)
		}
		l.wire.answer <- struct{}{}
		synctest.Wait()
		if n := len(l.queue); n != 0 {
			t.Errorf("%d calls wait though one of the stuck batches has ended, and others are late", n)
		}
		close(l.wire.answer)
		l.workers.Wait()
		waiting.expect(t, "waiting", 1, 0, 0, 0)
	})
}

func TestCallThatIsGivenUpInTheQueueIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t.Context())
		l.occupy(t)
		ctx, cancel := context.WithCancel(t.Context())
		canceled := l.add(ctx, 40, time.Minute)
		late := l.add(t.Context(), 40, time.Second)
		kept := l.add(t.Context(), 3, time.Minute)
		synctest.Wait()
		cancel()
		time.Sleep(2 * time.Second)
		canceled.expect(t, "canceled", 0, 0, 40, 40)
		late.expect(t, "late", 0, 40, 0, 40)
		close(l.wire.answer)
		l.workers.Wait()
		kept.expect(t, "kept", 3, 0, 0, 0)
		sent := 0
		for len(l.wire.batches) > 0 {
			sent += len(<-l.wire.batches)
		}
		if want := laneWidth + 3; sent != want {
			t.Errorf("%d commands were sent; want %d", sent, want)
		}
	})
}

// TestNextBatchLeavesOutWhatIsGivenUp frees a worker before the lane looks at its queue by itself.
func TestNextBatchLeavesOutWhatIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t.Context())
		l.occupy(t)
		ctx, cancel := context.WithCancel(t.Context())
		canceled := l.add(ctx, 40, time.Minute)
		kept := l.add(t.Context(), 3, time.Minute)
		cancel()
		l.wire.answer <- struct{}{}
		synctest.Wait()
		canceled.expect(t, "canceled", 0, 0, 40, 40)
		close(l.wire.answer)
		l.workers.Wait()
		kept.expect(t, "kept", 3, 0, 0, 0)
		for len(l.wire.batches) > 0 {
			if n := len(<-l.wire.batches); n != 1 && n != 3 {
				t.Errorf("a batch of %d", n)
			}
		}
	})
}

// TestCallIsToldOnceThoughItsReplyComesAtItsBound answers at the instant at which calls are given up.
func TestCallIsToldOnceThoughItsReplyComesAtItsBound(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			l := newTestLane(t.Context())
			var all []*told
			for range laneWidth {
				all = append(all, l.add(t.Context(), 1, time.Second))
				synctest.Wait()
			}
			all = append(all, l.add(t.Context(), 20, time.Second))
			time.Sleep(time.Second)
			close(l.wire.answer)
			l.workers.Wait()
			n := int32(0)
			for _, got := range all {
				n += got.granted.Load() + got.silent.Load()
				if wrong := got.wrong.Load(); wrong != 0 {
					t.Errorf("%d calls were told what another was answered", wrong)
				}
			}
			if n != laneWidth+20 {
				t.Errorf("%d calls were told; want %d", n, laneWidth+20)
			}
		})
	}
}

func TestReplyComesThoughTheCallerHasLeftButNotAfterTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		canceled := l.add(ctx, 1, time.Minute)
		late := l.add(t.Context(), 1, time.Second)
		synctest.Wait()
		cancel()
		time.Sleep(2 * time.Second)
		close(l.wire.answer)
		l.workers.Wait()
		canceled.expect(t, "canceled", 1, 0, 0, 0)
		late.expect(t, "late", 0, 1, 0, 0)
	})
}

func TestNothingIsLeftWhenTheSessionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := newTestLane(ctx)
		got := l.add(ctx, 200, time.Minute)
		synctest.Wait()
		cancel()
		l.workers.Wait()
		if n := got.canceled.Load(); n != 200 {
			t.Errorf("%d of 200 calls were told", n)
		}
		late := l.add(ctx, 1, time.Minute)
		l.workers.Wait()
		if n := late.canceled.Load(); n != 1 {
			t.Errorf("%d calls were told that came after the end, want 1", n)
		}
	})
}

// TestWaitersThatWereCancelledLeaveNothing gives up in every moment of a request. An end may
// come before the request that it is to undo, which travels with others.
func TestWaitersThatWereCancelledLeaveNothing(t *testing.T) {
	f := startFleet(t, 3)
	a := join(t, f.direct)
	// waiting is the nodes that know a place: one that lapses stays until somebody asks.
	waiting := func(key string) (nodes int) {
		for _, c := range f.direct {
			places, err := c.ZCard(t.Context(), queuePrefix+key).Result()
			if err != nil {
				t.Fatal(err)
			}
			nodes += int(min(places, 1))
		}
		return nodes
	}
	for i := range 5 {
		key := fmt.Sprint("k", i)
		g := a.take(key, ttl)
		b := join(t, f.proxied)
		b.drop(b.take("before", ttl))
		cancelMany(b, key)
		eventually(t, "the places being gone", func() bool { return waiting(key) == 0 })
		cancelMany(b, key)
		if err := b.Close(within(t, patience)); err != nil {
			t.Fatal(err)
		}
		if n := waiting(key); n > 1 { // a majority has none
			t.Errorf("%d of 3 nodes know places of a session that is closed", n)
		}
		a.drop(g)
	}
}

func cancelMany(p *peer, key string) {
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(p.t.Context(), time.Duration(i)*100*time.Microsecond)
			defer cancel()
			r := request(key, ttl)
			r.Wait = true
			if _, err := p.Acquire(ctx, r); err == nil {
				p.t.Error("a held key was granted")
			}
		})
	}
	all.Wait()
	for len(p.sink.waiting) > 0 {
		<-p.sink.waiting
	}
}

// TestCrowdSharesFewConnections has many ask at once: each for a key of its own, at nodes that
// take their time. A connection for each would be most of the work.
func TestCrowdSharesFewConnections(t *testing.T) {
	f := startFleet(t, 3)
	a := join(t, f.proxied)
	a.drop(a.take("before", ttl))
	defer f.harness().DelayReplies(50 * time.Millisecond)()
	const callers = 200
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			g, err := a.Acquire(within(t, patience), driver.Request{ID: driver.ID{Key: string(rune('0' + i)), Owner: newOwner()}, TTL: ttl})
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
				return
			}
			if err := a.release(g); err != nil {
				t.Errorf("caller %d: release: %v", i, err)
			}
		})
	}
	all.Wait()
	// A lane of each kind, the cleaner and the subscription.
	const most = 2*laneWidth + 2
	for i, c := range f.proxied {
		n := int(c.PoolStats().TotalConns)
		t.Logf("node %d: %d connections", i, n)
		if n > most {
			t.Errorf("node %d: %d connections for %d callers; want %d at most", i, n, callers, most)
		}
	}
}
