package core_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestCloseAndShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		l := mustAcquire(t, e, core.Policy{Key: "k"})
		waited := make(chan error)
		go func() {
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k", Wait: core.Forever})
			waited <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		mustBe(t, e.Shutdown(ctx), context.DeadlineExceeded)
		_, err := e.Acquire(t.Context(), core.Policy{Key: "j"})
		mustBe(t, err, core.ErrClosed)
		mustBe(t, l.Err(), nil)
		mustBe(t, e.Close(), nil)
		mustBe(t, <-waited, core.ErrClosed)
		mustBe(t, l.Err(), core.ErrClosed)
		mustBe(t, l.Release(t.Context()), core.ErrClosed)
		mustBe(t, e.Ping(t.Context()), core.ErrClosed)
		mustBe(t, e.Close(), nil)
		mustBe(t, e.Shutdown(t.Context()), nil)
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

func TestClosingTellsOfShutdownAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := func(c <-chan struct{}) bool {
			select {
			case <-c:
				return true
			default:
				return false
			}
		}
		for name, end := range map[string]func(*core.Engine) error{
			"Close":    (*core.Engine).Close,
			"Shutdown": func(e *core.Engine) error { return e.Shutdown(t.Context()) },
		} {
			e := open(t, memlock.New())
			before := e.Closing()
			if over(before) {
				t.Errorf("%s: it is told of before", name)
			}
			mustBe(t, end(e), nil)
			if !over(before) || !over(e.Closing()) {
				t.Errorf("%s: it is not told of", name)
			}
			mustBe(t, e.Close(), nil)
		}
		if (*core.Engine)(nil).Closing() != nil {
			t.Error("a nil engine has a channel")
		}
	})
}

func TestShutdownWaitsForHoldsAndWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		var ran atomic.Int32
		for range 3 {
			go func() {
				_ = e.Do(t.Context(), core.Policy{Key: "k", Wait: core.Forever}, func(context.Context) error {
					time.Sleep(time.Second)
					ran.Add(1)
					return nil
				})
			}()
		}
		synctest.Wait()
		mustBe(t, e.Shutdown(t.Context()), nil)
		if ran.Load() != 3 {
			t.Errorf("%d of 3 ran to the end", ran.Load())
		}
	})
}

func TestCloseKeepsWhatMinHoldKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		l := mustAcquire(t, e, core.Policy{Key: "k", MinHold: time.Minute})
		mustBe(t, e.Close(), nil)
		mustBe(t, l.Err(), core.ErrClosed)
		_, err := other.Acquire(t.Context(), core.Policy{Key: "k"})
		mustBe(t, err, core.ErrBusy)
	})
}

func TestCloseLeavesNoLeaseThatWasJustGranted(t *testing.T) {
	for range 200 {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_ = e.Do(t.Context(), core.Policy{Key: "k", Wait: core.Forever}, func(context.Context) error { return nil })
			})
		}
		mustBe(t, e.Close(), nil)
		wg.Wait()
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k"}).Release(t.Context()), nil)
	}
}
