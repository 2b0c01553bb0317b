package cache_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator/cache"
)

type page struct {
	ID   string
	Load int64
}

// library is a source of pages with a store and a lock before it, and processes that use them.
type library struct {
	t      *testing.T
	driver *memlock.Driver
	store  cache.Store
	loads  atomic.Int64
	load   func(ctx context.Context, id string) error // what a load does before it returns; nil for nothing
}

func newLibrary(t *testing.T) *library {
	return &library{t: t, driver: memlock.New(), store: cache.NewMemory(cache.Limits{Entries: 1000})}
}

// process is one more process's function.
func (l *library) process(c cache.Policy) *cache.Func[string, page] {
	l.t.Helper()
	f := cache.Must(l.locks(), core.Policy{Key: "page:{.}", Wait: time.Minute, TTL: 3 * time.Second}, l.store, l.read, c)
	l.t.Cleanup(f.Close)
	return f
}

// locks is one more process's engine.
func (l *library) locks() *core.Engine {
	l.t.Helper()
	locks, err := core.New(l.driver, core.WithNamespace("library"))
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() {
		if err := locks.Close(); err != nil {
			l.t.Error(err)
		}
	})
	return locks
}

func (l *library) read(ctx context.Context, id string) (page, error) {
	n := l.loads.Add(1)
	if l.load != nil {
		if err := l.load(ctx, id); err != nil {
			return page{}, err
		}
	}
	return page{ID: id, Load: n}, nil
}

// takes has a load take that long, or until its context ends.
func takes(d time.Duration) func(context.Context, string) error {
	return func(ctx context.Context, _ string) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *library) loaded(want int64) {
	l.t.Helper()
	if got := l.loads.Load(); got != want {
		l.t.Errorf("%d loads, want %d", got, want)
	}
}

// gets has the value be of that load.
func gets(t *testing.T, f *cache.Func[string, page], want int64) {
	t.Helper()
	if p, err := f.Get(t.Context(), "a"); err != nil || p != (page{"a", want}) {
		t.Errorf("%+v, %v; want load %d", p, err, want)
	}
}

func TestOneCallerOfAllProcessesLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = takes(time.Second)
		var calls sync.WaitGroup
		for range 4 {
			f := l.process(cache.Policy{Expiry: time.Minute})
			for range 250 {
				calls.Go(func() { gets(t, f, 1) })
			}
		}
		began := time.Now()
		calls.Wait()
		l.loaded(1)
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("the last one waited %v for a load of 1s", took)
		}
	})
}

func TestInvalidationBeatsALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		l.load = takes(time.Second)
		a, b := l.process(cache.Policy{Expiry: time.Minute}), l.process(cache.Policy{Expiry: time.Minute})
		var calls sync.WaitGroup
		calls.Go(func() { gets(t, a, 1) })
		time.Sleep(500 * time.Millisecond)
		if err := b.Invalidate(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		calls.Go(func() { gets(t, a, 2) })
		calls.Go(func() { gets(t, b, 2) })
		calls.Wait()
		gets(t, a, 2)
		l.loaded(2)
	})
}

func TestErrorsAreSharedAndNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLibrary(t)
		broken := errors.New("broken")
		l.load = func(ctx context.Context, id string) error {
			_ = takes(time.Second)(ctx, id)
			if l.loads.Load() == 1 {
				return broken
			}
			return nil
		}
		f := l.process(cache.Policy{Expiry: time.Minute})
		var calls sync.WaitGroup
		for range 10 {
			calls.Go(func() {
				if p, err := f.Get(t.Context(), "a"); !errors.Is(err, broken) || p != (page{}) {
					t.Errorf("%+v, %v", p, err)
				}
			})
		}
		calls.Wait()
		l.loaded(1)
		gets(t, f, 2)
	})
}
