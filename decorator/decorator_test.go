package decorator_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type deduction struct {
	SKU   string
	Count int
}

type receipt struct{ Left int }

var stock = core.Policy{Key: "stock:{SKU}"}

// newEngine returns an engine on d, closed with the test. Two engines on one
// driver are like two processes on one store.
// holdStock takes the lock of a SKU for the rest of the test.
func holdStock(t testing.TB, e *core.Engine, sku string) {
	t.Helper()
	l, err := e.Acquire(t.Context(), core.Policy{Key: "stock:" + sku})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Release(context.Background()); err != nil {
			t.Errorf("release: %v", err)
		}
	})
}

func TestStockIsNotOversold(t *testing.T) {
	const start, callers, replicas = 100, 60, 3
	store := memlock.New()
	left := start // read and written under the lock alone
	svc := func(_ context.Context, d deduction) (receipt, error) {
		seen := left
		runtime.Gosched()
		if seen < d.Count {
			return receipt{}, errors.New("sold out")
		}
		left = seen - d.Count
		return receipt{left}, nil
	}
	var (
		sold  atomic.Int64
		calls sync.WaitGroup
	)
	for range replicas {
		deduct := decorator.WithLock(roomtest.Engine(t, store), core.Policy{Key: "stock:{SKU}", Wait: core.Forever}, svc)
		for range callers {
			calls.Go(func() {
				_, err := deduct(t.Context(), deduction{"A-1", 1})
				switch {
				case err == nil:
					sold.Add(1)
				case err.Error() != "sold out":
					t.Error(err)
				}
			})
		}
	}
	calls.Wait()
	if sold.Load() != start || left != 0 {
		t.Errorf("sold %d of %d, %d left", sold.Load(), start, left)
	}
}

func TestCallSeesItsArgumentItsContextAndItsLease(t *testing.T) {
	type tag struct{}
	deduct := decorator.WithLock(roomtest.Engine(t, memlock.New()), stock, func(ctx context.Context, d deduction) (receipt, error) {
		l, ok := core.LeaseFrom(ctx)
		if !ok || l.Key() != "stock:A%2F1" || l.Token() <= 0 {
			t.Errorf("lease %v, %t", l, ok)
		}
		if ctx.Value(tag{}) != "caller" {
			t.Error("the caller's values are gone")
		}
		return receipt{d.Count}, nil
	})
	got, err := deduct(context.WithValue(t.Context(), tag{}, "caller"), deduction{"A/1", 7})
	if err != nil || got != (receipt{7}) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestScalarArgumentIsThePlaceholderDot(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	refill := decorator.WithLockErr(e, core.Policy{Key: "cache:{.}"}, func(ctx context.Context, id int) error {
		if l, _ := core.LeaseFrom(ctx); l.Key() != "cache:42" {
			t.Errorf("locked %q", l.Key())
		}
		return nil
	})
	if err := refill(t.Context(), 42); err != nil {
		t.Error(err)
	}
}

func TestCallThatCannotBeLockedDoesNotRunAndReturnsZero(t *testing.T) {
	store := memlock.New()
	e := roomtest.Engine(t, store)
	holdStock(t, roomtest.Engine(t, store), "taken")
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name string
		ctx  context.Context
		wait time.Duration
		in   deduction
		want error
	}{
		{"busy", t.Context(), 0, deduction{SKU: "taken"}, core.ErrBusy},
		{"no key", t.Context(), core.Forever, deduction{}, core.ErrKey},
		{"cancelled", cancelled, core.Forever, deduction{SKU: "taken"}, context.Canceled},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := core.Policy{Key: "stock:{SKU}", Wait: tc.wait}
			unwanted := func(context.Context, deduction) (receipt, error) {
				t.Error("the function ran")
				return receipt{1}, nil
			}
			got, err := decorator.WithLock(e, p, unwanted)(tc.ctx, tc.in)
			if got != (receipt{}) || !errors.Is(err, tc.want) {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
			err = decorator.WithLockErr(e, p, func(ctx context.Context, d deduction) error {
				_, err := unwanted(ctx, d)
				return err
			})(tc.ctx, tc.in)
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v; want %v", err, tc.want)
			}
		})
	}
}

// isExactly reports whether err is want itself, with nothing around it.
func isExactly(err, want error) bool { return any(err) == any(want) }

func TestFunctionsOwnResultAndErrorComeBackAsTheyAre(t *testing.T) {
	e, own := roomtest.Engine(t, memlock.New()), errors.New("partly done")
	deduct := decorator.WithLock(e, stock, func(context.Context, deduction) (receipt, error) { return receipt{3}, own })
	if got, err := deduct(t.Context(), deduction{SKU: "A"}); got != (receipt{3}) || !isExactly(err, own) {
		t.Errorf("got %v, %v", got, err)
	}
	run := decorator.WithLockErr(e, stock, func(context.Context, deduction) error { return own })
	if err := run(t.Context(), deduction{SKU: "A"}); !isExactly(err, own) {
		t.Errorf("got %v", err)
	}
}

func TestLossComesBackBesideTheResultOfTheWork(t *testing.T) {
	store := memlock.New()
	e := roomtest.Engine(t, store)
	lose := func(ctx context.Context) {
		if !store.Expire("shop/stock:A") {
			t.Error("nothing was locked")
		}
		<-ctx.Done()
		if cause := context.Cause(ctx); !errors.Is(cause, core.ErrLost) {
			t.Errorf("cancelled by %v", cause)
		}
	}
	own := errors.New("own")
	for _, tc := range []struct {
		name       string
		give, want error
	}{{"without an error", nil, core.ErrLost}, {"with its own error", own, own}} {
		t.Run(tc.name, func(t *testing.T) {
			deduct := decorator.WithLock(e, stock, func(ctx context.Context, _ deduction) (receipt, error) {
				lose(ctx)
				return receipt{5}, tc.give
			})
			if got, err := deduct(t.Context(), deduction{SKU: "A"}); got != (receipt{5}) || !errors.Is(err, tc.want) {
				t.Errorf("got %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestMaxHoldCancelsTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := core.New(memlock.New(), core.WithNamespace("shop"), core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		deduct := decorator.WithLock(e, core.Policy{Key: "stock:{SKU}", MaxHold: time.Minute}, func(ctx context.Context, _ deduction) (receipt, error) {
			<-ctx.Done()
			return receipt{1}, nil
		})
		start := time.Now()
		if got, err := deduct(t.Context(), deduction{SKU: "A"}); got != (receipt{1}) || !errors.Is(err, core.ErrMaxHold) {
			t.Errorf("got %v, %v", got, err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("took %v", took)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestPanicReleasesTheLockAndGoesOn(t *testing.T) {
	e, value := roomtest.Engine(t, memlock.New()), &struct{ int }{7}
	bang := true
	deduct := decorator.WithLock(e, stock, func(context.Context, deduction) (receipt, error) {
		if bang {
			panic(value)
		}
		return receipt{1}, nil
	})
	func() {
		defer func() {
			if got := recover(); got != value {
				t.Errorf("recovered %v", got)
			}
		}()
		_, _ = deduct(t.Context(), deduction{SKU: "A"})
	}()
	bang = false
	if _, err := deduct(t.Context(), deduction{SKU: "A"}); err != nil {
		t.Errorf("after a panic: %v", err)
	}
}

func TestGoexitReleasesTheLock(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	exit := true
	run := decorator.WithLockErr(e, stock, func(context.Context, deduction) error {
		if exit {
			runtime.Goexit()
		}
		return nil
	})
	var calls sync.WaitGroup
	calls.Go(func() {
		_ = run(t.Context(), deduction{SKU: "A"})
		t.Error("Goexit did not end the goroutine")
	})
	calls.Wait()
	exit = false
	if err := run(t.Context(), deduction{SKU: "A"}); err != nil {
		t.Errorf("after Goexit: %v", err)
	}
}

func TestCallInsideItselfIsADeadlockUnlessReentrant(t *testing.T) {
	e := roomtest.Engine(t, memlock.New())
	for _, reentrant := range []bool{false, true} {
		var countdown func(context.Context, int) (int, error)
		countdown = decorator.WithLock(e, core.Policy{Key: "countdown", Wait: core.Forever, Reentrant: reentrant}, func(ctx context.Context, n int) (int, error) {
			if n == 0 {
				return 0, nil
			}
			got, err := countdown(ctx, n-1)
			return got + 1, err
		})
		got, err := countdown(t.Context(), 3)
		if reentrant && (got != 3 || err != nil) {
			t.Errorf("reentrant: %d, %v", got, err)
		}
		if !reentrant && !errors.Is(err, core.ErrDeadlock) {
			t.Errorf("not reentrant: %v", err)
		}
	}
}

func BenchmarkWithLock(b *testing.B) {
	fn := func(_ context.Context, d deduction) (receipt, error) { return receipt{d.Count}, nil }
	b.Run("free", func(b *testing.B) {
		deduct := decorator.WithLock(roomtest.Engine(b, memlock.New()), stock, fn)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := deduct(context.Background(), deduction{"A-1", 1}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("contended", func(b *testing.B) {
		deduct := decorator.WithLock(roomtest.Engine(b, memlock.New()), core.Policy{Key: "stock:{SKU}", Wait: core.Forever}, fn)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := deduct(context.Background(), deduction{"A-1", 1}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
