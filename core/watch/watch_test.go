package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/core/watch"
)

// open returns an engine on d that the end of the test closes. It waits for the store
// longer than a busy machine stops a test.
func open(t testing.TB, d driver.Driver, o ...core.Option) *core.Engine {
	t.Helper()
	o = append([]core.Option{core.WithStoreTimeout(time.Minute), core.WithNamespace("test"), core.WithLogger(slog.New(slog.DiscardHandler))}, o...)
	e, err := core.New(d, o...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustBe(t, e.Close(), nil) })
	return e
}

func mustAcquire(t testing.TB, e *core.Engine, p core.Policy) *core.Lease {
	t.Helper()
	l, err := e.Acquire(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustBe(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}

// watched begins to watch, until the test ends.
func watched(t *testing.T, e *core.Engine) *watch.Watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w, err := watch.New(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		for range w.Changed() {
		}
	})
	return w
}

// keyOf returns what a view has of a key.
func keyOf(v watch.View, key string) watch.Key {
	for _, k := range v.Keys {
		if k.Key == key {
			return k
		}
	}
	return watch.Key{}
}

func TestWatchShowsAtOnceWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		p := core.Policy{Key: "stock:1", Name: "stock", Wait: time.Minute, TTL: time.Minute}
		l := mustAcquire(t, e, p)
		came := time.Now()
		waited := make(chan error)
		go func() { waited <- e.Do(t.Context(), p, func(context.Context) error { return nil }) }()
		synctest.Wait()
		time.Sleep(3 * time.Second)

		w := watched(t, e)
		v := w.View()
		k := keyOf(v, "stock:1")
		if len(k.Holders) != 1 || len(k.Waiters) != 1 || k.Holding != 1 || k.Waiting != 1 {
			t.Fatalf("%+v", v)
		}
		if h := k.Holders[0]; h.Token != l.Token() || h.Policy != "stock" || !h.Self || !h.Since.Equal(came) || !h.Until.Equal(l.Deadline()) {
			t.Errorf("holder %+v", h)
		}
		if wt := k.Waiters[0]; wt.Policy != "stock" || !wt.Self || !wt.Since.Equal(came) {
			t.Errorf("waiter %+v", wt)
		}
		mustBe(t, l.Release(t.Context()), nil)
		mustBe(t, <-waited, nil)
		<-w.Changed()
		k = keyOf(w.View(), "stock:1")
		if len(k.Holders)+len(k.Waiters) > 0 || k.Counts.Taken != 1 || k.Counts.HandedOff != 1 || k.Counts.Released != 2 {
			t.Errorf("%+v", k)
		}
		var kinds []watch.Kind
		for _, ev := range k.Events {
			kinds = append(kinds, ev.Kind)
			if ev.Kind == watch.HandedOn && (ev.Waited != 3*time.Second || ev.Token != l.Token()+1) {
				t.Errorf("%+v", ev)
			}
		}
		slices.Sort(kinds) // all was in one instant
		if want := []watch.Kind{watch.HandedOn, watch.Released, watch.Released, watch.Renewed}; !slices.Equal(kinds, want) {
			t.Errorf("events %v, want %v", kinds, want)
		}
	})
}

func TestWatchIsRefusedAfterClose(t *testing.T) {
	e := open(t, memlock.New())
	mustBe(t, e.Close(), nil)
	if _, err := watch.New(t.Context(), e); !errors.Is(err, core.ErrClosed) {
		t.Error(err)
	}
}

func TestWatchThatCannotBeginIsRefused(t *testing.T) {
	e := open(t, memlock.New())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var none context.Context
	for name, tc := range map[string]struct {
		ctx    context.Context
		engine *core.Engine
		want   error
	}{
		"no engine":             {t.Context(), nil, core.ErrPolicy},
		"an engine of no store": {t.Context(), new(core.Engine), core.ErrPolicy},
		"no context":            {none, e, core.ErrPolicy},
		"a context that ended":  {ended, e, context.Canceled},
	} {
		if w, err := watch.New(tc.ctx, tc.engine); w != nil || !errors.Is(err, tc.want) || !errors.As(err, new(*core.Error)) {
			t.Errorf("%s: %v; want %v", name, err, tc.want)
		}
	}
}

func TestWatchThatHasEndedCostsNothing(t *testing.T) {
	e := open(t, memlock.New())
	p := core.Policy{Key: "stock:1", Name: "stock"}
	do := func() { mustBe(t, e.Do(t.Context(), p, func(context.Context) error { return nil }), nil) }
	do()
	goroutines, allocations := runtime.NumGoroutine(), testing.AllocsPerRun(100, do)

	ctx, cancel := context.WithCancel(t.Context())
	w, err := watch.New(ctx, e)
	if err != nil {
		t.Fatal(err)
	}
	<-w.Changed()
	do()
	if n := keyOf(w.View(), "stock:1").Counts.Taken; n != 1 {
		t.Errorf("%d seen", n)
	}
	cancel()
	for range w.Changed() {
	}
	if v := w.View(); len(v.Keys) > 0 || v.Alone == "" {
		t.Errorf("after the end: %+v", v)
	}
	for began := time.Now(); runtime.NumGoroutine() > goroutines && time.Since(began) < time.Minute; {
		runtime.Gosched()
	}
	if n, a := runtime.NumGoroutine(), testing.AllocsPerRun(100, do); n > goroutines || a > allocations {
		t.Errorf("%d goroutines and %v allocations a call after the watch, %d and %v before", n, a, goroutines, allocations)
	}
}

func TestWatchCountsHowCallersFared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e := open(t, d)
		w := watched(t, e)
		p := core.Policy{Key: "stock:1", Name: "stock", TTL: time.Minute}
		l := mustAcquire(t, e, p)
		_, err := e.Acquire(t.Context(), p)
		mustBe(t, err, core.ErrBusy)
		waits := p
		waits.Wait = time.Second
		_, err = e.Acquire(t.Context(), waits)
		mustBe(t, err, core.ErrTimeout)
		time.Sleep(time.Minute)
		if h := keyOf(w.View(), "stock:1").Holders; len(h) != 1 || h[0].Renewals < 2 {
			t.Errorf("renewals: %+v", h)
		}
		d.Expire("test/stock:1")
		<-l.Done()
		mustBe(t, l.Release(t.Context()), core.ErrLost)
		v := w.View()
		c := keyOf(v, "stock:1").Counts
		if c.Taken != 1 || c.Refused != 1 || c.TimedOut != 1 || c.Lost != 1 || c.Released != 0 || c.Renewed < 2 {
			t.Errorf("%+v", c)
		}
		if len(v.Policies) != 1 || v.Policies[0].Name != "stock" || v.Policies[0].Counts != c {
			t.Errorf("policies %+v", v.Policies)
		}
		var longest time.Duration
		for _, b := range keyOf(v, "stock:1").Waits {
			longest = max(longest, b.Longest)
		}
		if longest != time.Second {
			t.Errorf("the longest wait is %v", longest)
		}
	})
}

func TestWatchShowsTheLongestWaitsOfVeryManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 10_000
		e := open(t, memlock.New())
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var leases []*core.Lease
		for i := range n {
			p := core.Policy{Key: fmt.Sprint("stock:", i), Wait: core.Forever, TTL: time.Hour}
			leases = append(leases, mustAcquire(t, e, p))
			all.Go(func() { _, _ = e.Acquire(ctx, p) })
			if i%100 == 0 {
				synctest.Wait()
				time.Sleep(time.Millisecond)
			}
		}
		synctest.Wait()
		v := watched(t, e).View()
		if len(v.Keys) != watch.MaxKeys || v.Dropped != n-watch.MaxKeys || v.Processes[0].Waiting != n || v.Processes[0].Held != n {
			t.Errorf("%d keys, %d dropped, %+v", len(v.Keys), v.Dropped, v.Processes)
		}
		if len(keyOf(v, "stock:0").Waiters) != 1 {
			t.Error("the longest wait is not shown")
		}
		cancel()
		all.Wait()
		for _, l := range leases {
			mustBe(t, l.Release(t.Context()), nil)
		}
	})
}
