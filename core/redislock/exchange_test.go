package redislock

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core/internal/kit"
)

// ask sends a call on a goroutine that cannot be interrupted.
func (l *testLane) ask() *call {
	c := &call{}
	go l.exchange(c, time.Now())
	synctest.Wait()
	return c
}

// after makes the server answer one batch after that time.
func (l *testLane) after(d time.Duration) {
	time.Sleep(d) // of the bubble's clock
	l.wire.answer <- struct{}{}
	synctest.Wait()
}

// newBusyNearLane returns a lane to a near server. As many callers as may have sent their
// calls alone, and a batch of one call is under way.
func newBusyNearLane() *testLane {
	l := newTestLane(2)
	l.ask()
	l.after(0)
	for range nearAlone + 1 {
		l.ask()
	}
	return l
}

// under returns how many batches are under way.
func (l *testLane) under() int { return int(l.wire.running.Load()) }

func TestFewTravelTogetherToANearServerAndAloneToAFarOne(t *testing.T) {
	tests := []struct {
		name string
		trip time.Duration
		want []int // under way after each of several calls
	}{
		{"near", nearTime, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 10, 10, 10, 10}},
		{"far", nearTime + 1, []int{1, 2, 3, 4, 4, 4, 4, 4}},
		{"farther", 7 * spacing, []int{1, 2, 3, 4, 5, 6, 7, 7, 7, 7}},
		{"as far as there are connections", time.Millisecond, []int{1, 2, 3, 4, 5, 6, 7, 8, 8, 8}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLane(2)
				l.ask()
				l.after(tt.trip)
				var calls []*call
				for i, want := range tt.want {
					calls = append(calls, l.ask())
					if got := l.under(); got != want {
						t.Errorf("%d batches are under way after %d calls, want %d", got, i+1, want)
					}
				}
				close(l.wire.answer)
				synctest.Wait()
				for i, c := range calls {
					if c.reply.err != nil {
						t.Errorf("call %d: %v", i, c.reply.err)
					}
				}
				l.workers.Wait()
			})
		})
	}
}

func TestServerThatFallsSilentIsNotNear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBusyNearLane()
		given := l.ask()
		time.Sleep(patience)
		synctest.Wait()
		if s := new(kit.SilenceError); !errors.As(given.reply.err, &s) {
			t.Errorf("who waited behind a batch that got no answer got %v", given.reply)
		}
		l.mu.Lock()
		if l.near() {
			t.Error("a server that does not answer is near")
		}
		l.mu.Unlock()
		close(l.wire.answer)
		synctest.Wait()
		l.workers.Wait()
	})
}

func TestNobodyWaitsBehindABatchThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(2)
		for want := range 2 {
			_, answered := l.add(1)
			time.Sleep(patience)
			synctest.Wait()
			if got := l.under(); got != want+1 || answered.Load() != 0 {
				t.Fatalf("%d batches are under way, want %d", got, want+1)
			}
		}
		began := time.Now()
		if c := l.ask(); !errors.As(c.reply.err, new(*kit.SilenceError)) || !c.reply.sentOnce {
			t.Errorf("who came when all batches were given up got %v", c.reply)
		}
		l.after(0) // one is answered after all
		c := l.ask()
		if got := l.under(); got != 2 {
			t.Errorf("%d batches are under way, want 2", got)
		}
		if since := time.Since(began); since > 0 {
			t.Errorf("that took %v", since)
		}
		close(l.wire.answer)
		synctest.Wait()
		if c.reply.err != nil {
			t.Errorf("who came after an answer got %v", c.reply)
		}
		l.workers.Wait()
	})
}

// Another connection may answer quickly meanwhile: a few use it, and nobody waits for more.
func TestNobodyWaitsBehindAGivenUpBatchOfANearServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(2)
		for range 2 {
			l.add(1)
			time.Sleep(patience)
			synctest.Wait()
			l.mu.Lock()
			l.noteRoundTrip(time.Now(), time.Now())
			l.mu.Unlock()
		}
		for want := range nearAlone {
			l.ask()
			if got := l.under(); got != want+3 {
				t.Fatalf("%d requests and batches are under way, want %d", got, want+3)
			}
		}
		began := time.Now()
		if c := l.ask(); !errors.As(c.reply.err, new(*kit.SilenceError)) || !c.reply.sentOnce {
			t.Errorf("who came when all batches were given up got %v", c.reply)
		}
		if since := time.Since(began); since > 0 {
			t.Errorf("that took %v", since)
		}
		close(l.wire.answer)
		synctest.Wait()
		l.workers.Wait()
	})
}

func TestOthersWaitForNoBatchOfThose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBusyNearLane()
		l.add(1)
		synctest.Wait()
		if got := l.under(); got != nearAlone+2 {
			t.Errorf("%d requests and batches are under way when a call has come that can be interrupted, want %d", got, nearAlone+2)
		}
		close(l.wire.answer)
		synctest.Wait()
		l.workers.Wait()
	})
}

// A call that was sent alone makes room for queued calls, too.
func TestFarServerGetsWhatWaitsAsSoonAsThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(2)
		l.ask()
		l.after(5 * spacing)
		for range 5 {
			l.ask()
		}
		waiting := []*call{l.ask(), l.ask()}
		if got := l.under(); got != 5 {
			t.Fatalf("%d requests are under way, want 5", got)
		}
		l.after(0) // one of the five
		if got := l.under(); got != 5 {
			t.Errorf("%d requests and batches are under way when one was answered, want 5", got)
		}
		close(l.wire.answer)
		synctest.Wait()
		for i, c := range waiting {
			if c.reply.err != nil || !c.answered {
				t.Errorf("call %d that waited got %v", i, c.reply)
			}
		}
		l.workers.Wait()
	})
}

func TestNobodyOfACrowdGoesAloneToANearServer(t *testing.T) {
	l := newTestLane(2)
	l.roundTrip, l.roundTripAt = nearTime, time.Now()
	for batched, want := range map[int]bool{0: true, crowd - 1: true, crowd: false, 10 * crowd: false} {
		l.batched = batched
		if got := l.maySendAlone(); got != want {
			t.Errorf("with %d in batches one more may go alone: %v", batched, got)
		}
	}
	l.roundTrip, l.batched = nearTime+1, 10*crowd
	if !l.maySendAlone() {
		t.Error("nobody may go alone to a server that is far, though there is room")
	}
}

func TestServerIsNearForAsLongAsItsFastestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLane(2)
		near := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.near()
		}
		for _, step := range []struct {
			trip time.Duration
			want bool
		}{{nearTime, true}, {10 * nearTime, true}, {nearFor + nearTime, false}, {10 * nearTime, false}, {nearTime / 2, true}} {
			l.ask()
			if l.after(step.trip); near() != step.want {
				t.Errorf("after an answer that took %v a server is near: %v", step.trip, near())
			}
		}
		l.workers.Wait()
	})
}
