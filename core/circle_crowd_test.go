package core_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// TestManyWhoHoldAndWaitDelayNobodyElse has thousands of calls wait for one key, each of which
// holds a key that another call waits for, and lets a call with other keys wait beside them: as
// long as where no context shows what a call holds, but for what the machine is late by. It
// took ten thousand times as long while each looked at all of them.
func TestManyWhoHoldAndWaitDelayNobodyElse(t *testing.T) {
	hidden := beside(t, 3000, core.Detach)
	shown := beside(t, 3000, func(ctx context.Context) context.Context { return ctx })
	if t.Logf("hidden %v, shown %v", hidden, shown); shown > 2000*hidden {
		t.Errorf("a wait took %v beside calls that show what they hold, and %v beside others", shown, hidden)
	}
}

// beside returns how long a wait of 10 ms takes beside n calls that hold a key and wait.
func beside(t *testing.T, n int, seen func(context.Context) context.Context) time.Duration {
	e := open(t, memlock.New())
	hot := mustAcquire(t, e, core.Policy{Key: "hot"})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	nothing := func(context.Context) error { return nil }
	forever := func(ctx context.Context, key string, fn func(context.Context) error) {
		_ = e.Do(ctx, core.Policy{Key: key, Wait: core.Forever}, fn) // most are cancelled
	}
	for i := range n {
		own := fmt.Sprint("own", i)
		all.Go(func() {
			forever(ctx, own, func(inner context.Context) error {
				ctx, cancel := context.WithCancel(seen(inner))
				defer cancel()
				defer context.AfterFunc(inner, cancel)()
				forever(ctx, "hot", nothing)
				return nil
			})
		})
		all.Go(func() { forever(ctx, own, nothing) })
	}
	x := mustAcquire(t, e, core.Policy{Key: "x"})
	var took time.Duration
	mustBe(t, e.Do(t.Context(), core.Policy{Key: "y"}, func(ctx context.Context) error {
		begun := time.Now()
		defer func() { took = time.Since(begun) }()
		return e.Do(ctx, core.Policy{Key: "x", Wait: 10 * time.Millisecond}, nothing)
	}), core.ErrTimeout)
	cancel()
	mustBe(t, x.Release(t.Context()), nil)
	mustBe(t, hot.Release(t.Context()), nil)
	all.Wait()
	return took
}

// TestCircleBehindManyIsFound has a crowd wait in front of the call that closes a circle.
func TestCircleBehindManyIsFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		var all sync.WaitGroup
		all.Go(func() { mustBe(t, nested(t.Context(), e, takes("a"), takes("b")), nil) })
		time.Sleep(100 * time.Millisecond)
		all.Go(func() {
			err := e.Do(t.Context(), takes("b"), func(ctx context.Context) error {
				time.Sleep(500 * time.Millisecond)
				for range 1000 {
					all.Go(func() { _ = e.Do(t.Context(), takes("a"), func(context.Context) error { return nil }) })
				}
				time.Sleep(time.Second)
				begun := time.Now()
				err := e.Do(ctx, takes("a"), func(context.Context) error { return nil })
				if took := time.Since(begun); took != 0 {
					t.Errorf("the circle was found after %v", took)
				}
				return err
			})
			mustBe(t, err, core.ErrDeadlock)
		})
		all.Wait()
	})
}
