package decorator_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator"
)

func TestALoaderThatHangsIsEndedByMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = takes(time.Hour)
		f := decorator.Cached(l.locks(), core.Policy{Key: "page:{.}", Wait: core.Forever, MaxHold: 2 * time.Second, TTL: time.Second}, l.store, l.read, kept)
		t.Cleanup(f.Close)
		if _, err := f.Get(t.Context(), "a"); !errors.Is(err, core.ErrMaxHold) {
			t.Errorf("%v; want ErrMaxHold", err)
		}
		l.load = nil
		gets(t, f, 2)
	})
}

func TestAPanicGoesOnInEveryCallerThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = func(ctx context.Context, id string) error {
			_ = takes(time.Second)(ctx, id)
			panic("page " + id)
		}
		f := l.process(kept)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				defer func() {
					if v := recover(); v != "page a" {
						t.Errorf("recovered %v", v)
					}
				}()
				_, err := f.Get(t.Context(), "a")
				t.Errorf("returned %v", err)
			})
		}
		calls.Wait()
		l.loaded(1)
		l.load = nil
		gets(t, f, 2)
		time.Sleep(11 * time.Second)
		l.load = func(context.Context, string) error { panic("in the background") }
		gets(t, f, 2)
		synctest.Wait()
		l.loaded(3)
	})
}

func TestAFunctionThatEndsItsGoroutineIsAnErrorForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = func(context.Context, string) error { runtime.Goexit(); return nil }
		f := l.process(kept)
		if _, err := f.Get(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "ended its goroutine") {
			t.Error(err)
		}
		l.load = nil
		gets(t, f, 2)
	})
}

func TestAFunctionThatAsksForItsOwnValueIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		f := l.process(kept)
		l.load = func(ctx context.Context, id string) error {
			other := map[string]string{"a": "b", "b": "a", "c": "d", "d": ""}[id]
			if other == "" {
				return nil
			}
			_, err := f.Get(ctx, other)
			return err
		}
		if _, err := f.Get(t.Context(), "a"); !errors.Is(err, core.ErrDeadlock) {
			t.Errorf("a needs b, which needs a: %v", err)
		}
		if _, err := f.Get(t.Context(), "c"); err != nil {
			t.Errorf("c needs d: %v", err)
		}
	})
}

func TestALoadEndsWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		ended := make(chan error, 1)
		l.load = func(ctx context.Context, id string) error {
			err := takes(time.Hour)(ctx, id)
			ended <- err
			return err
		}
		f := l.process(kept)
		var calls sync.WaitGroup
		for i := range 3 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				if _, err := f.Get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
			})
		}
		began := time.Now()
		if err := <-ended; !errors.Is(err, context.Canceled) || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v; want the load to end with the last caller", err, time.Since(began))
		}
		calls.Wait()
		l.load = nil
		gets(t, f, 2)
	})
}

func TestCloseEndsLoadsAndWhoWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		f := l.process(kept)
		gets(t, f, 1)
		l.load = takes(time.Hour)
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := f.Get(t.Context(), "b"); !errors.Is(err, core.ErrClosed) {
				t.Errorf("%v; want ErrClosed", err)
			}
		})
		synctest.Wait()
		f.Close()
		calls.Wait()
		gets(t, f, 1)
		if _, err := f.Get(t.Context(), "c"); !errors.Is(err, core.ErrClosed) {
			t.Errorf("%v; want ErrClosed", err)
		}
		f.Close()
	})
}

func TestLoadsThatWaitForEachOtherEndInADeadlockAndLeaveTheirLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		var f *decorator.CachedFunc[string, page]
		next := map[string]string{"a": "b", "b": "c", "c": "a"}
		circle := true
		l.load = func(ctx context.Context, id string) error {
			if !circle {
				return nil
			}
			time.Sleep(time.Second) // until all of them are under way
			_, err := f.Get(ctx, next[id])
			return err
		}
		f = l.process(decorator.CachePolicy{Expiry: time.Minute})
		var callers sync.WaitGroup
		for id := range next {
			callers.Go(func() {
				if _, err := f.Get(t.Context(), id); !errors.Is(err, core.ErrDeadlock) {
					t.Errorf("Get of %s, which waits for itself: %v; want ErrDeadlock", id, err)
				}
			})
		}
		began := time.Now()
		callers.Wait()
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the deadlock was told after %v", took)
		}
		circle = false
		for id := range next {
			if _, err := f.Get(t.Context(), id); err != nil {
				t.Errorf("Get of %s afterwards: %v", id, err)
			}
		}
	})
}

func TestHolderOfAKeyDoesNotWaitForALoadThatWaitsForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		locks := l.locks()
		f := decorator.Cached(locks, core.Policy{Key: "page:{.}", Wait: core.Forever, TTL: 3 * time.Second}, l.store, l.read, decorator.CachePolicy{Expiry: time.Minute})
		t.Cleanup(f.Close)
		var other sync.WaitGroup
		err := locks.Do(t.Context(), core.Policy{Key: "page:a"}, func(ctx context.Context) error {
			other.Go(func() {
				if _, err := f.Get(t.Context(), "a"); err != nil { // its load waits for the lock
					t.Errorf("Get by somebody else: %v", err)
				}
			})
			synctest.Wait()
			if _, err := f.Get(ctx, "a"); !errors.Is(err, core.ErrDeadlock) {
				t.Errorf("Get by the holder of the lock: %v; want ErrDeadlock", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		other.Wait()
	})
}
