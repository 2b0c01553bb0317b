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

func TestWaitEndsAsThePolicyOrTheContextSays(t *testing.T) {
	const wait = 300 * time.Millisecond
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	tests := []struct {
		name string
		wait time.Duration
		ctx  func() (context.Context, context.CancelFunc)
		want error
		took time.Duration
	}{
		{"no wait", 0, nil, core.ErrBusy, 0},
		{"wait", wait, nil, core.ErrTimeout, wait},
		{"deadline before wait", wait, func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), wait/3)
		}, context.DeadlineExceeded, wait / 3},
		{"deadline and wait for ever", core.Forever, func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), wait)
		}, context.DeadlineExceeded, wait},
		{"cancelled before", core.Forever, func() (context.Context, context.CancelFunc) { return canceled, func() {} }, context.Canceled, 0},
	}
	for _, where := range []string{"same process", "other process"} {
		for _, tt := range tests {
			t.Run(where+"/"+tt.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := memlock.New()
					holder := open(t, d)
					caller := holder
					if where == "other process" {
						caller = open(t, d)
					}
					held := mustAcquire(t, holder, core.Policy{Key: "k"})
					defer func() { mustBe(t, held.Release(context.Background()), nil) }()
					ctx := context.Background()
					if tt.ctx != nil {
						var cancel context.CancelFunc
						ctx, cancel = tt.ctx()
						defer cancel()
					}
					start := time.Now()
					_, err := caller.Acquire(ctx, core.Policy{Key: "k", Wait: tt.wait})
					mustBe(t, err, tt.want)
					if took := time.Since(start); took != tt.took {
						t.Errorf("took %v, want %v", took, tt.took)
					}
				})
			})
		}
	}
}

func TestCallersOfOneProcessAreServedInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		first := mustAcquire(t, e, core.Policy{Key: "k"})
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				_ = e.Do(t.Context(), core.Policy{Key: "k", Wait: core.Forever}, func(context.Context) error {
					order = append(order, i)
					return nil
				})
			})
			synctest.Wait()
		}
		mustBe(t, first.Release(t.Context()), nil)
		wg.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("order %v", order)
			}
		}
	})
}

func TestCancelledCallerPassesItsPlaceOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		holder, us, them := open(t, d), open(t, d), open(t, d)
		held := mustAcquire(t, holder, core.Policy{Key: "k"})
		var order []string
		var wg sync.WaitGroup
		queue := func(e *core.Engine, ctx context.Context, name string) {
			wg.Go(func() {
				if err := e.Do(ctx, core.Policy{Key: "k", Wait: core.Forever}, func(context.Context) error {
					order = append(order, name)
					return nil
				}); err != nil {
					order = append(order, name+" left")
				}
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithCancel(t.Context())
		queue(us, ctx, "first")
		queue(them, t.Context(), "them")
		queue(us, t.Context(), "second")
		cancel()
		synctest.Wait()
		mustBe(t, held.Release(t.Context()), nil)
		wg.Wait()
		if len(order) != 3 || order[0] != "first left" || order[1] != "second" || order[2] != "them" {
			t.Errorf("order %q", order)
		}
	})
}

func TestWithdrawnCallersLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		holder, us := open(t, d), open(t, d)
		held := mustAcquire(t, holder, core.Policy{Key: "k"})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				_, err := us.Acquire(ctx, core.Policy{Key: "k", Wait: core.Forever})
				mustBe(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		synctest.Wait()
		mustBe(t, held.Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, holder, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

func TestProcessesTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		engines := []*core.Engine{open(t, d), open(t, d)}
		var counts [2]int
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		total := 0
		for i := range 16 {
			wg.Go(func() {
				for ctx.Err() == nil {
					_ = engines[i%2].Do(ctx, core.Policy{Key: "k", Wait: core.Forever}, func(context.Context) error {
						time.Sleep(time.Millisecond) // all others wait by then
						counts[i%2]++
						if total++; total == 20_000 {
							cancel()
						}
						return nil
					})
				}
			})
		}
		wg.Wait()
		cancel()
		if min(counts[0], counts[1]) < total/4 {
			t.Errorf("shares %v of %d", counts, total)
		}
	})
}
