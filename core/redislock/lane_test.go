package redislock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/driver"
)

// slowWire answers a batch when it is told to.
type slowWire struct {
	batches chan []*command
	answer  chan struct{}
	running atomic.Int32
}

func newSlowWire() *slowWire {
	return &slowWire{batches: make(chan []*command, 1024), answer: make(chan struct{})}
}

func (w *slowWire) run(_ context.Context, cmds []*command, replies []reply) {
	w.running.Add(1)
	defer w.running.Add(-1)
	w.batches <- slices.Clone(cmds)
	<-w.answer
	for i, c := range cmds {
		replies[i].value = c.key
	}
}

func (*slowWire) endsWithContext() bool { return true }

func (*slowWire) connections() int { return 8 }

func (*slowWire) node(string) string { return "" }

func (*slowWire) scan(context.Context, string, string, int) ([]string, string, error) {
	return nil, "", nil
}

func (*slowWire) listen(ctx context.Context, _ string, _ *topics, _ func(), _ func(string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (*slowWire) tell(context.Context, string, []byte) error { return nil }

type testLane struct {
	*lane
	wire    *slowWire
	workers sync.WaitGroup
}

func newTestLane(width int) *testLane {
	l := &testLane{wire: newSlowWire()}
	l.lane = &lane{wire: l.wire, ctx: context.Background(), workers: &l.workers, width: width, maxWidth: 8, timeout: time.Second, created: time.Now()}
	return l
}

// add sends n calls and returns what they were answered, once they all were.
func (l *testLane) add(n int) (calls []*call, answered *atomic.Int32) {
	answered = new(atomic.Int32)
	for range n {
		c := &call{done: func(*call) { answered.Add(1) }}
		calls = append(calls, c)
		l.send(c)
	}
	return calls, answered
}

func TestCallsAreSentAloneWhenFewAndTogetherWhenMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(2)
		_, first := l.add(1)
		synctest.Wait()
		_, second := l.add(1)
		synctest.Wait()
		_, more := l.add(50)
		synctest.Wait()
		for range 2 {
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
		if first.Load() != 1 || second.Load() != 1 || more.Load() != 50 {
			t.Errorf("%d, %d and %d answers", first.Load(), second.Load(), more.Load())
		}
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := newTestLane(1)
		l.add(1)
		synctest.Wait()
		_, answered := l.add(3 * maxBatch)
		close(l.wire.answer)
		l.workers.Wait()
		for range 4 {
			if n := len(<-l.wire.batches); n > maxBatch {
				t.Errorf("a batch of %d", n)
			}
		}
		if answered.Load() != 3*maxBatch {
			t.Errorf("%d answers", answered.Load())
		}
	})
}

func TestStuckBatchesGiveWayUpToABound(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := newTestLane(2)
		var all []*atomic.Int32
		for range 100 {
			_, answered := l.add(3)
			all = append(all, answered)
			time.Sleep(l.timeout + time.Millisecond)
		}
		if n := l.wire.running.Load(); n != 2+maxOverdue {
			t.Errorf("%d batches under way, want %d and %d that are overdue", n, 2, maxOverdue)
		}
		close(l.wire.answer)
		l.workers.Wait()
		for i, answered := range all {
			if answered.Load() != 3 {
				t.Errorf("round %d got %d answers", i, answered.Load())
			}
		}
		if l.active != 0 || l.overdue != 0 || len(l.queue) != 0 {
			t.Errorf("left: %d active, %d overdue, %d queued", l.active, l.overdue, len(l.queue))
		}
	})
}

func TestWithdrawnCallsAreNeverSent(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := newTestLane(1)
		first, _ := l.add(1)
		synctest.Wait()
		if l.withdraw(first[0]) {
			t.Error("a call that is under way was withdrawn")
		}
		given, unanswered := l.add(1000)
		for _, c := range given {
			if !l.withdraw(c) {
				t.Error("a call that is queued was not withdrawn")
			}
		}
		if n := len(l.queue); n > 100 {
			t.Errorf("%d withdrawn calls are kept", n)
		}
		_, answered := l.add(1)
		close(l.wire.answer)
		l.workers.Wait()
		if unanswered.Load() != 0 || answered.Load() != 1 {
			t.Errorf("%d withdrawn and %d other calls were answered", unanswered.Load(), answered.Load())
		}
	})
}

func TestClosedLaneRefuses(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := newTestLane(1)
		l.add(1)
		synctest.Wait()
		queued, answered := l.add(2)
		l.close()
		late, refused := l.add(1)
		if answered.Load() != 2 || refused.Load() != 1 {
			t.Errorf("%d queued and %d late calls were answered", answered.Load(), refused.Load())
		}
		for _, c := range append(queued, late...) {
			if !errors.Is(c.reply.err, driver.ErrClosed) || !c.reply.sentOnce {
				t.Errorf("refused with %v", c.reply.err)
			}
		}
		close(l.wire.answer)
		l.workers.Wait()
	})
}

// quiet is a Sink that nobody listens to.
type quiet struct{}

func (quiet) Waiting(driver.ID)         {}
func (quiet) Contended(driver.ID, bool) {}
func (quiet) Lost(driver.ID, error)     {}

func TestEveryCallReturnsByItsContextsEndWhateverTheClientDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSlowWire()
		c := config{connections: 2, channel: randomChannel, jitter: func() float64 { return 0.5 }}
		s := newSession(c, driver.Config{Sink: quiet{}, StoreTimeout: 3 * time.Second}, w)
		id := driver.ID{Key: "k", Owner: driver.Owner{1}}
		for name, do := range map[string]func(context.Context) error{
			"acquire": func(ctx context.Context) error {
				_, err := s.Acquire(ctx, driver.Request{ID: id, TTL: time.Minute})
				return err
			},
			"waiting acquire": func(ctx context.Context) error {
				_, err := s.Acquire(ctx, driver.Request{ID: id, TTL: time.Minute, Wait: true})
				return err
			},
			"renew": func(ctx context.Context) error {
				return s.Renew(ctx, []driver.Renewal{{ID: id, TTL: time.Minute}})[0].Err
			},
			"release": func(ctx context.Context) error { return s.Release(ctx, []driver.Ending{{ID: id}})[0] },
			"oust":    func(ctx context.Context) error { return s.Oust(ctx, "k", 1) },
			"inspect": func(ctx context.Context) error { _, err := s.Inspect(ctx, "k"); return err },
			"ping":    s.Ping,
		} {
			for _, patience := range []time.Duration{100 * time.Millisecond, time.Hour} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				start := time.Now()
				id.Owner[1]++
				err := do(ctx)
				cancel()
				if err == nil {
					t.Errorf("%s succeeded", name)
				}
				if took, want := time.Since(start), min(patience, s.timeout); took != want {
					t.Errorf("%s with %v of patience took %v, want %v", name, patience, took, want)
				}
			}
		}
		close(w.answer)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_ = s.Close(ctx) // its clean-ups were answered with nonsense
	})
}
