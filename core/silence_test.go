package core_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestSilentStoreHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := openUsual(t, d)
		const ttl = 10 * time.Second
		held := mustAcquire(t, e, core.Policy{Key: "held", TTL: ttl})
		sent := time.Now()
		d.Stall()
		var wg sync.WaitGroup
		for _, wait := range []time.Duration{0, time.Second, core.Forever} {
			for range 20 {
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					defer cancel()
					start := time.Now()
					_, err := e.Acquire(ctx, core.Policy{Key: "k", Wait: wait})
					mustBe(t, err, context.DeadlineExceeded)
					if took := time.Since(start); took != 100*time.Millisecond {
						t.Errorf("took %v", took)
					}
				})
			}
		}
		wg.Wait()
		for wait, want := range map[time.Duration]time.Duration{0: 3 * time.Second, time.Second: time.Second} {
			wg.Go(func() {
				start := time.Now()
				_, err := e.Acquire(t.Context(), core.Policy{Key: "j", Wait: wait})
				mustBe(t, err, core.ErrUnavailable)
				if took := time.Since(start); took > want {
					t.Errorf("Wait %v took %v, want at most %v", wait, took, want)
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		mustBe(t, held.Check(ctx), context.DeadlineExceeded)
		cancel()
		mustBe(t, held.Err(), nil)
		<-held.Done()
		if left := ttl - time.Since(sent); left < ttl/100 || left > ttl/50 {
			t.Errorf("the holder was told %v before its lease was over", left)
		}
		mustBe(t, held.Err(), core.ErrLost)
		wg.Wait()
		d.Heal()
		synctest.Wait()
		mustBe(t, held.Release(t.Context()), core.ErrLost)
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "held", Wait: 2 * time.Second}).Release(t.Context()), nil)
	})
}

func TestReleaseReturnsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d)
		l := mustAcquire(t, e, core.Policy{Key: "k"})
		d.Stall()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		mustBe(t, l.Release(ctx), core.ErrUnavailable)
		if took := time.Since(start); took != time.Second {
			t.Errorf("took %v", took)
		}
		d.Heal()
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "k", Wait: 4 * time.Second}).Release(t.Context()), nil)
	})
}

func TestWaitThatRunsOutBetweenTwoHoldersIsATimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d)
		held := mustAcquire(t, e, core.Policy{Key: "k"})
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k", Wait: time.Second})
			mustBe(t, err, core.ErrTimeout)
		})
		time.Sleep(900 * time.Millisecond)
		d.Stall()
		d.Expire("test/k") // nobody holds, and the store does not answer the next request
		wg.Wait()
		d.Heal()
		mustBe(t, held.Release(t.Context()), core.ErrLost)
	})
}
