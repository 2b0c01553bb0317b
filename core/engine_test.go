package core_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

// open returns an engine on d that the end of the test closes.
func open(t testing.TB, d driver.Driver, o ...core.Option) *core.Engine {
	t.Helper()
	o = append([]core.Option{core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler))}, o...)
	e, err := core.New(d, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// mustAcquire takes a lock or ends the test.
func mustAcquire(t testing.TB, e *core.Engine, p core.Policy) *core.Lease {
	t.Helper()
	l, err := e.Acquire(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// mustBe fails the test unless err is want, and an *Error, or both are nil.
func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
	var typed *core.Error
	if err != nil && !errors.As(err, &typed) {
		t.Errorf("error %T is no *core.Error", err)
	}
}

func TestOneHolderAtATimeAndTokensRise(t *testing.T) {
	d := memlock.New()
	engines := []*core.Engine{open(t, d), open(t, d), open(t, d)}
	var inside atomic.Int32
	var last int64
	var wg sync.WaitGroup
	for i := range 48 {
		wg.Go(func() {
			for range 200 {
				err := engines[i%3].Do(t.Context(), core.Policy{Key: "k", Wait: core.Forever}, func(ctx context.Context) error {
					if inside.Add(1) != 1 {
						t.Error("two holders at once")
					}
					l, ok := core.LeaseFrom(ctx)
					if !ok {
						t.Error("no lease in the context")
					} else if l.Token() <= last {
						t.Errorf("token %d after %d", l.Token(), last)
					} else {
						last = l.Token()
					}
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

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

func TestLeaseLivesAsLongAsItsHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		l, err := e.Acquire(ctx, core.Policy{Key: "k", TTL: time.Second})
		mustBe(t, err, nil)
		cancel() // bounds the acquisition only
		time.Sleep(time.Minute)
		mustBe(t, l.Err(), nil)
		mustBe(t, l.Check(t.Context()), nil)
		_, err = other.Acquire(t.Context(), core.Policy{Key: "k"})
		mustBe(t, err, core.ErrBusy)
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

func TestReleaseTwiceIsAnError(t *testing.T) {
	e := open(t, memlock.New())
	l := mustAcquire(t, e, core.Policy{Key: "k"})
	mustBe(t, l.Err(), nil)
	mustBe(t, l.Release(t.Context()), nil)
	select {
	case <-l.Done():
	default:
		t.Error("Done is open after Release")
	}
	for _, err := range []error{l.Release(t.Context()), l.Err(), l.Check(t.Context())} {
		mustBe(t, err, core.ErrNotHeld)
	}
}

func TestHoldEndsEarlyForItsReason(t *testing.T) {
	tests := []struct {
		name   string
		policy core.Policy
		cause  func(t *testing.T, d *memlock.Driver, e *core.Engine)
		want   error
		after  time.Duration
	}{
		{"lost at the store", core.Policy{}, func(_ *testing.T, d *memlock.Driver, _ *core.Engine) { d.Expire("test/k") }, core.ErrLost, 0},
		{"store out of reach", core.Policy{TTL: 10 * time.Second}, func(_ *testing.T, d *memlock.Driver, _ *core.Engine) { d.Fail(errors.New("down")) }, core.ErrLost, 10*time.Second - 102*time.Millisecond},
		{"not renewed", core.Policy{TTL: 10 * time.Second, NoRenew: true}, nil, core.ErrLost, 10*time.Second - 102*time.Millisecond},
		{"held too long", core.Policy{MaxHold: 4 * time.Second}, nil, core.ErrMaxHold, 4 * time.Second},
		{"closed", core.Policy{}, func(_ *testing.T, _ *memlock.Driver, e *core.Engine) { _ = e.Close() }, core.ErrClosed, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				e := open(t, d)
				tt.policy.Key = "k"
				own := errors.New("own")
				for _, result := range []error{nil, own} {
					var start time.Time
					err := e.Do(t.Context(), tt.policy, func(ctx context.Context) error {
						start = time.Now()
						if tt.cause != nil {
							go tt.cause(t, d, e)
						}
						<-ctx.Done()
						if cause := context.Cause(ctx); cause != tt.want {
							t.Errorf("the context ended for %v, want %v", cause, tt.want)
						}
						return result
					})
					if errors.Is(err, core.ErrClosed) && tt.want == core.ErrClosed && result == own {
						break // the engine is closed: nothing ran
					}
					if result != nil && err != result {
						t.Errorf("got %v, want the function's own error", err)
					}
					if result == nil {
						mustBe(t, err, tt.want)
					}
					if took := time.Since(start); took != tt.after {
						t.Errorf("ended after %v, want %v", took, tt.after)
					}
					d.Fail(nil)
					synctest.Wait()
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

func TestContextOfTheGuardedCall(t *testing.T) {
	type key struct{}
	e := open(t, memlock.New())
	parent, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Hour)
	var kept context.Context
	err := e.Do(parent, core.Policy{Key: "k"}, func(ctx context.Context) error {
		kept = ctx
		if ctx.Value(key{}) != "value" {
			t.Error("the caller's values are gone")
		}
		want, _ := parent.Deadline()
		if got, ok := ctx.Deadline(); !ok || !got.Equal(want) {
			t.Error("the caller's deadline is gone")
		}
		cancel()
		<-ctx.Done()
		if l, ok := core.LeaseFrom(ctx); !ok || l.Err() != nil {
			t.Error("the caller's cancellation ended the hold")
		}
		return nil
	})
	mustBe(t, err, nil)
	if _, ok := core.LeaseFrom(kept); ok {
		t.Error("a lease is found after the call")
	}
}

func TestPanicAndGoexitRelease(t *testing.T) {
	e := open(t, memlock.New())
	p := core.Policy{Key: "k"}
	func() {
		defer func() {
			if r := recover(); r != "out" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = e.Do(t.Context(), p, func(context.Context) error { panic("out") })
	}()
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = e.Do(t.Context(), p, func(context.Context) error { runtime.Goexit(); return nil })
	})
	wg.Wait()
	mustBe(t, e.Do(t.Context(), p, func(context.Context) error { return nil }), nil)
}

func TestReentrance(t *testing.T) {
	d := memlock.New()
	e, other := open(t, d), open(t, d)
	plain, nesting := core.Policy{Key: "k"}, core.Policy{Key: "k", Reentrant: true}
	err := e.Do(t.Context(), plain, func(ctx context.Context) error {
		outer, _ := core.LeaseFrom(ctx)
		_, err := e.Acquire(ctx, core.Policy{Key: "k", Wait: core.Forever})
		mustBe(t, err, core.ErrDeadlock)
		_, err = e.Acquire(core.Detach(ctx), plain)
		mustBe(t, err, core.ErrBusy)
		_, err = other.Acquire(ctx, plain)
		mustBe(t, err, core.ErrBusy)
		mustBe(t, e.Do(ctx, core.Policy{Key: "elsewhere"}, func(ctx context.Context) error {
			return e.Do(ctx, nesting, func(ctx context.Context) error {
				if l, ok := core.LeaseFrom(ctx); !ok || l.Token() != outer.Token() {
					t.Error("a nested use has another token")
				}
				return nil
			})
		}), nil)
		return nil
	})
	mustBe(t, err, nil)
}

func TestNestedUseDelaysTheRelease(t *testing.T) {
	e := open(t, memlock.New())
	outer := mustAcquire(t, e, core.Policy{Key: "k"})
	inner, err := e.Acquire(outer.Context(t.Context()), core.Policy{Key: "k", Reentrant: true})
	mustBe(t, err, nil)
	mustBe(t, outer.Release(t.Context()), nil)
	mustBe(t, inner.Err(), nil)
	_, err = e.Acquire(t.Context(), core.Policy{Key: "k"})
	mustBe(t, err, core.ErrBusy)
	mustBe(t, inner.Release(t.Context()), nil)
	mustBe(t, inner.Release(t.Context()), core.ErrNotHeld)
	mustBe(t, mustAcquire(t, e, core.Policy{Key: "k"}).Release(t.Context()), nil)
}

func TestStoreOutOfReachIsUnavailableInTime(t *testing.T) {
	tests := []struct {
		name string
		wait time.Duration
		max  time.Duration
	}{
		{"no wait", 0, 3 * time.Second},
		{"wait", 2 * time.Second, 2 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				down := errors.New("secret address")
				d.Fail(down)
				e := open(t, d)
				mustBe(t, e.Ping(t.Context()), core.ErrUnavailable)
				start := time.Now()
				_, err := e.Acquire(t.Context(), core.Policy{Key: "k", Wait: tt.wait})
				mustBe(t, err, core.ErrUnavailable)
				if !errors.Is(err, down) {
					t.Error("the cause is out of reach")
				}
				if took := time.Since(start); took > tt.max {
					t.Errorf("took %v", took)
				}
				d.Fail(nil)
				mustBe(t, e.Ping(t.Context()), nil)
				mustBe(t, mustAcquire(t, e, core.Policy{Key: "k"}).Release(t.Context()), nil)
			})
		})
	}
}

func TestWaiterOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d)
		d.Fail(errors.New("down"))
		time.AfterFunc(20*time.Second, func() { d.Fail(nil) })
		start := time.Now()
		l := mustAcquire(t, e, core.Policy{Key: "k", Wait: core.Forever})
		if took := time.Since(start); took > 22*time.Second {
			t.Errorf("took %v", took)
		}
		mustBe(t, l.Release(t.Context()), nil)
	})
}

func TestReleaseDuringAnOutageGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		l := mustAcquire(t, e, core.Policy{Key: "k"})
		d.Fail(errors.New("down"))
		mustBe(t, l.Release(t.Context()), core.ErrUnavailable)
		mustBe(t, e.Do(t.Context(), core.Policy{Key: "j"}, func(context.Context) error { return nil }), core.ErrUnavailable)
		time.Sleep(5 * time.Second)
		d.Fail(nil)
		time.Sleep(3 * time.Second)
		mustBe(t, mustAcquire(t, other, core.Policy{Key: "k"}).Release(t.Context()), nil)
	})
}

func TestMinHoldKeepsTheKeyTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		start := time.Now()
		mustBe(t, e.Do(t.Context(), core.Policy{Key: "k", MinHold: time.Minute}, func(context.Context) error { return nil }), nil)
		for _, e := range []*core.Engine{e, other} {
			_, err := e.Acquire(t.Context(), core.Policy{Key: "k"})
			mustBe(t, err, core.ErrBusy)
		}
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "k", Wait: 2 * time.Minute}).Release(t.Context()), nil)
		if took := time.Since(start); took < time.Minute || took > time.Minute+2*time.Second {
			t.Errorf("taken for %v", took)
		}
	})
}

func TestProcessesTakeTurns(t *testing.T) {
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
}

func TestCapsAreErrors(t *testing.T) {
	t.Run("waiters", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := open(t, memlock.New(), core.WithMaxWaiters(2))
			l := mustAcquire(t, e, core.Policy{Key: "k"})
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { _, _ = e.Acquire(ctx, core.Policy{Key: "k", Wait: core.Forever}) })
			}
			synctest.Wait()
			_, err := e.Acquire(ctx, core.Policy{Key: "k", Wait: core.Forever})
			mustBe(t, err, core.ErrBusy)
			cancel()
			wg.Wait()
			mustBe(t, l.Release(t.Context()), nil)
		})
	})
	t.Run("held", func(t *testing.T) {
		e := open(t, memlock.New(), core.WithMaxHeld(1))
		l := mustAcquire(t, e, core.Policy{Key: "k"})
		_, err := e.Acquire(t.Context(), core.Policy{Key: "j"})
		mustBe(t, err, core.ErrUnavailable)
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, e, core.Policy{Key: "j"}).Release(t.Context()), nil)
	})
	t.Run("key", func(t *testing.T) {
		e := open(t, memlock.New())
		_, err := e.Acquire(t.Context(), core.Policy{Key: string(make([]byte, core.MaxKeyLength+1))})
		mustBe(t, err, core.ErrKey)
	})
}

func TestImpossiblePoliciesAreRefused(t *testing.T) {
	e := open(t, memlock.New())
	tests := []struct {
		name   string
		policy core.Policy
		says   string
	}{
		{"no key", core.Policy{}, "neither Key nor Keys"},
		{"both keys", core.Policy{Key: "a", Keys: []string{"b"}}, "both Key and Keys"},
		{"several keys", core.Policy{Keys: []string{"a", "b"}}, "one key"},
		{"braces", core.Policy{Key: "stock:{sku}"}, "Guard"},
		{"brace", core.Policy{Key: "stock:}"}, "Guard"},
		{"limit", core.Policy{Key: "a", Limit: 3}, "only a Semaphore"},
		{"mode", core.Policy{Key: "a", Mode: core.Shared}, "offers exclusive"},
		{"unknown mode", core.Policy{Key: "a", Mode: 9}, "unknown"},
		{"wait", core.Policy{Key: "a", Wait: -1}, "core.Forever"},
		{"ttl", core.Policy{Key: "a", TTL: -1}, "default"},
		{"short ttl", core.Policy{Key: "a", TTL: 1}, "at least"},
		{"long ttl", core.Policy{Key: "a", TTL: 1 << 62}, "at most"},
		{"max hold", core.Policy{Key: "a", MaxHold: -1}, "no bound"},
		{"min hold", core.Policy{Key: "a", MinHold: -1}, "none"},
		{"min over max", core.Policy{Key: "a", MinHold: 2, MaxHold: 1}, "longer than"},
		{"strict", core.Policy{Key: "a", Fairness: core.Strict}, "does not offer"},
		{"unknown fairness", core.Policy{Key: "a", Fairness: 7}, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.policy.Name = "deduct"
			_, err := e.Acquire(t.Context(), tt.policy)
			mustBe(t, err, core.ErrPolicy)
			var typed *core.Error
			if errors.As(err, &typed) && (typed.Policy != "deduct" || !strings.Contains(typed.Error(), tt.says)) {
				t.Errorf("error %q does not say %q", err, tt.says)
			}
		})
	}
	for _, d := range []driver.Driver{nil, (*memlock.Driver)(nil)} {
		if _, err := core.New(d); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("nil driver: %v", err)
		}
	}
	mustBe(t, e.Do(t.Context(), core.Policy{Key: "a"}, nil), core.ErrPolicy)
	for _, o := range []core.Option{core.WithNamespace("a/b"), core.WithMaxHeld(0), core.WithMaxWaiters(-1), core.WithStoreTimeout(0)} {
		if _, err := core.New(memlock.New(), o); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("bad option: %v", err)
		}
	}
}

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
