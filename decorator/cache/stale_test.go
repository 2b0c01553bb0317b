package cache_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/cache"
)

// kept has values that are fresh for 10 s and end after 60 s.
var kept = cache.Policy{Expiry: time.Minute, Fresh: 10 * time.Second}

func TestAStaleValueIsGivenWhileItIsRefreshedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = takes(time.Second)
		a, b := l.process(kept), l.process(kept)
		gets(t, a, 1)
		time.Sleep(9999 * time.Millisecond)
		gets(t, a, 1)
		synctest.Wait()
		l.loaded(1)
		time.Sleep(2 * time.Millisecond)
		for range 10 {
			began := time.Now()
			gets(t, a, 1)
			gets(t, b, 1)
			if waited := time.Since(began); waited > 0 {
				t.Errorf("who may have a stale value waited %v", waited)
			}
		}
		time.Sleep(1001 * time.Millisecond)
		gets(t, a, 2)
		gets(t, b, 2)
		l.loaded(2)
	})
}

func TestAValueThatHasEndedIsGivenToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		f := l.process(kept)
		gets(t, f, 1)
		time.Sleep(time.Minute)
		gets(t, f, 2)
	})
}

func TestAnEarlyRefreshSparesEverybodyTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []cache.Policy{
			{Expiry: 10 * time.Second, Early: 2 * time.Second},
			{Expiry: time.Minute, Fresh: 10 * time.Second, Early: 2 * time.Second, Stale: cache.StaleIfError},
		} {
			l := newLibrary(t)
			l.load = takes(time.Second)
			f := l.process(c)
			gets(t, f, 1)
			time.Sleep(7900 * time.Millisecond)
			gets(t, f, 1)
			synctest.Wait()
			l.loaded(1)
			time.Sleep(200 * time.Millisecond)
			gets(t, f, 1) // begins it
			time.Sleep(1001 * time.Millisecond)
			gets(t, f, 2)
			time.Sleep(7900 * time.Millisecond)
			gets(t, f, 2)
			synctest.Wait()
			l.loaded(2)
		}
	})
}

func TestAStaleValueIsGivenOnlyIfNoFreshOneIsToBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kept
		c.Stale = cache.StaleIfError
		for name, fail := range map[string]func(l *library){
			"the load fails": func(l *library) {
				l.load = func(context.Context, string) error { return errors.New("broken") }
			},
			"the lock is not to be had": func(l *library) { l.driver.Fail(errors.New("down")) },
		} {
			l := newLibrary(t)
			f := l.process(c)
			gets(t, f, 1)
			time.Sleep(11 * time.Second)
			gets(t, f, 2)
			time.Sleep(11 * time.Second)
			fail(l)
			gets(t, f, 2)
			time.Sleep(time.Minute)
			if p, err := f.Get(t.Context(), "a"); err == nil {
				t.Errorf("%s: %+v of a value that has ended", name, p)
			}
			l.driver.Heal()
		}
	})
}

func TestNotFoundIsAnAnswerAndNoStaleValueIsGivenInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kept
		c.Stale = cache.StaleIfError
		l := newLibrary(t)
		f := l.process(c)
		gets(t, f, 1)
		time.Sleep(11 * time.Second)
		l.load = func(context.Context, string) error { return cache.ErrNotFound }
		for range 2 {
			if p, err := f.Get(t.Context(), "a"); !errors.Is(err, cache.ErrNotFound) || p != (page{}) {
				t.Errorf("%+v, %v", p, err)
			}
		}
		l.loaded(3)
	})
}

func TestNotFoundIsKeptForItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := kept
		c.NotFound, c.Early = 5*time.Second, 9*time.Second
		l := newLibrary(t)
		l.load = func(context.Context, string) error { return errors.Join(errors.New("no row"), cache.ErrNotFound) }
		f := l.process(c)
		missing := func(want int64) {
			t.Helper()
			if p, err := f.Get(t.Context(), "a"); !errors.Is(err, cache.ErrNotFound) || p != (page{}) {
				t.Errorf("%+v, %v", p, err)
			}
			synctest.Wait()
			l.loaded(want)
		}
		missing(1)
		time.Sleep(4999 * time.Millisecond)
		missing(1)
		time.Sleep(time.Millisecond)
		missing(2)
		if err := f.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		l.load = nil
		gets(t, f, 3)
	})
}

func TestNotFoundIsNotGivenToWhoAskedAfterAnInvalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = func(ctx context.Context, id string) error {
			_ = takes(time.Second)(ctx, id)
			if l.loads.Load() == 1 {
				return cache.ErrNotFound
			}
			return nil
		}
		f := l.process(kept) // which keeps none
		var calls sync.WaitGroup
		calls.Go(func() {
			if _, err := f.Get(t.Context(), "a"); !errors.Is(err, cache.ErrNotFound) {
				t.Error(err)
			}
		})
		time.Sleep(500 * time.Millisecond)
		if err := f.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		gets(t, f, 2)
		calls.Wait()
	})
}

func TestAFailedRefreshIsNotRepeatedByEveryReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		f := l.process(kept)
		gets(t, f, 1)
		time.Sleep(11 * time.Second)
		l.load = func(context.Context, string) error { return errors.New("broken") }
		for range 30 {
			gets(t, f, 1)
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		l.loaded(4)
		l.load = nil
		time.Sleep(time.Second)
		gets(t, f, 1)
		synctest.Wait()
		gets(t, f, 5)
	})
}

func TestJitterShortensLifetimesAndNeverPastItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		f := l.process(cache.Policy{Expiry: 10 * time.Second, Jitter: 0.5})
		seen := make(map[time.Duration]bool)
		for n := range int64(20) {
			gets(t, f, n+1)
			stored := time.Now()
			for l.loads.Load() == n+1 {
				time.Sleep(100 * time.Millisecond)
				if _, err := f.Get(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			lived := time.Since(stored)
			if lived < 5*time.Second || lived > 10100*time.Millisecond {
				t.Errorf("a value lived for %v", lived)
			}
			seen[lived] = true
			if err := f.Invalidate(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			l.loads.Store(n + 1)
		}
		if len(seen) < 5 {
			t.Errorf("only %d lifetimes in 20 values", len(seen))
		}
	})
}

func TestABusyKeyIsAnErrorIfThePolicyDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = takes(time.Second)
		locks := l.locks()
		slow := l.process(kept)
		hasty := cache.Must(locks, core.Policy{Key: "page:{.}"}, l.store, l.read, kept)
		t.Cleanup(hasty.Close)
		var calls sync.WaitGroup
		calls.Go(func() { gets(t, slow, 1) })
		synctest.Wait()
		if _, err := hasty.Get(t.Context(), "a"); !errors.Is(err, core.ErrBusy) {
			t.Errorf("%v; want ErrBusy", err)
		}
		calls.Wait()
		gets(t, hasty, 1)
	})
}
