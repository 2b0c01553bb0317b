package core_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

type byName = map[string]core.Override

func TestReplacedOverridesAreThoseOfTheNextAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		holder, e := open(t, d), open(t, d, core.WithOverrides(byName{"stock": {Wait: new(2 * time.Second)}}))
		g := mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}"}, core.Fields[string]())
		held := mustAcquire(t, holder, core.Policy{Key: "stock:A"})
		waits := func(want time.Duration) {
			t.Helper()
			for _, call := range []func() error{
				func() error { return g.Do(t.Context(), "A", doNothing) },
				func() error { return e.Do(t.Context(), core.Policy{Name: "stock", Key: "stock:A"}, doNothing) },
			} {
				start := time.Now()
				err := call()
				if took := time.Since(start); took != want || err == nil {
					t.Errorf("waited for %v, want %v: %v", took, want, err)
				}
			}
			if got := g.Policy().Wait; got != want {
				t.Errorf("the guard's policy has Wait %v, want %v", got, want)
			}
		}
		waits(2 * time.Second)

		// A caller who waits already goes on as it began.
		began, done := time.Now(), make(chan time.Duration)
		go func() {
			mustBe(t, g.Do(t.Context(), "A", doNothing), core.ErrTimeout)
			done <- time.Since(began)
		}()
		synctest.Wait()
		mustBe(t, e.ReplaceOverrides(byName{"stock": {Wait: new(5 * time.Second)}}), nil)
		if took := <-done; took != 2*time.Second {
			t.Errorf("the wait that was under way took %v", took)
		}
		waits(5 * time.Second)

		mustBe(t, e.ReplaceOverrides(nil), nil) // as the program says
		waits(0)
		mustBe(t, held.Release(t.Context()), nil)
	})
}

func TestLeaseThatIsHeldKeepsItsTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New(), core.WithOverrides(byName{}))
		stock := core.Policy{Name: "stock", Key: "stock:A", MaxHold: 2 * time.Second}
		held := mustAcquire(t, e, stock)
		mustBe(t, e.ReplaceOverrides(byName{"stock": {MaxHold: new(time.Hour), TTL: new(time.Minute)}}), nil)
		start := time.Now()
		<-held.Done()
		if took := time.Since(start); took != 2*time.Second || !errors.Is(held.Err(), core.ErrMaxHold) {
			t.Errorf("it ended after %v: %v", took, held.Err())
		}
		mustBe(t, held.Release(t.Context()), core.ErrMaxHold)
		next := mustAcquire(t, e, stock)
		time.Sleep(time.Minute)
		mustBe(t, next.Release(t.Context()), nil)
	})
}

func TestOverridesAreReplacedAllOrNone(t *testing.T) {
	const restart = "cannot change while the program runs"
	for _, tc := range []struct {
		name string
		next byName
		says []string
	}{
		{"one that no policy could have", byName{"other": {Wait: new(time.Hour)}, "stock": {TTL: new(time.Nanosecond)}}, []string{`lock override "stock"`, "at least"}},
		{"one that a policy cannot have", byName{"other": {Wait: new(time.Hour)}, "stock": {MaxHold: new(time.Second)}}, []string{`lock compile "stock"`, "MinHold 5s is longer than MaxHold 1s; make MinHold shorter, or MaxHold longer; from core.WithOverrides: MaxHold"}},
		{"two", byName{"other": {Wait: new(-time.Hour)}, "": {}}, []string{`lock override "other"`, "empty name"}},
		{"another mode", byName{"other": {Wait: new(time.Hour), Mode: new(core.Shared)}, "shared": {Mode: new(core.Shared)}}, []string{`lock override "other"`, restart}},
		{"a mode that goes", byName{"other": {Wait: new(time.Hour)}}, []string{`lock override "shared"`, restart}},
		{"another limit", byName{"other": {Wait: new(time.Hour)}, "shared": {Mode: new(core.Shared), Limit: new(0)}}, []string{`lock override "shared"`, restart}},
		{"a policy that is kept", byName{"kept": {TTL: new(time.Hour)}, "shared": {Mode: new(core.Shared)}, "other": {Wait: new(time.Hour)}}, []string{`lock override "kept"`, "restart the program"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := open(t, memlock.New(), core.WithOverrides(byName{"other": {Wait: new(time.Second)}, "shared": {Mode: new(core.Shared)}}))
			mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}", MinHold: 5 * time.Second}, core.Fields[string]())
			other := mustGuard(t, e, core.Policy{Name: "other", Key: "other:{.}"}, core.Fields[string]())
			kept := mustGuard(t, e, core.Policy{Name: "kept", Key: "kept:{.}"}, core.Fields[string]())
			kept.KeepPolicy()
			stock := mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}", MinHold: 5 * time.Second}, core.Fields[string]())
			err := e.ReplaceOverrides(tc.next)
			mustBe(t, err, core.ErrPolicy)
			for _, part := range tc.says {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("got %v; want %q", err, part)
				}
			}
			if got := other.Policy().Wait; got != time.Second {
				t.Errorf("another policy has Wait %v", got)
			}
			runtime.KeepAlive(stock)
		})
	}
}

func TestRefusedOverridesAreNotSaidToRelaxALock(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   core.Mode // of the overrides from the start
		next core.Override
		want int
	}{
		{"a refused mode", core.Exclusive, core.Override{Mode: new(core.Shared)}, 0},
		{"a mode that stays", core.Shared, core.Override{Mode: new(core.Shared)}, 1},
		{"a mode that stays, with what is refused", core.Shared, core.Override{Mode: new(core.Shared), TTL: new(time.Nanosecond)}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			e := open(t, memlock.New(), core.WithOverrides(byName{"stock": {Mode: new(tc.at)}}), core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			g := mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}"}, core.Fields[string]())
			for range 2 {
				_ = e.ReplaceOverrides(byName{"stock": tc.next})
				mustBe(t, g.Do(t.Context(), "A", doNothing), nil)
				mustBe(t, e.Do(t.Context(), core.Policy{Name: "stock", Key: "stock:A"}, doNothing), nil)
			}
			if got := strings.Count(log.String(), "lets more callers hold a lock together"); got != tc.want {
				t.Errorf("said %d times, want %d: %s", got, tc.want, &log)
			}
		})
	}
}

func TestEngineWithoutOverridesHasNoneToReplace(t *testing.T) {
	mustBe(t, open(t, memlock.New()).ReplaceOverrides(byName{}), core.ErrPolicy)
	var none *core.Engine
	mustBe(t, none.ReplaceOverrides(byName{}), core.ErrPolicy)
}

func TestNamesAreKnownAfterOverridesWereReplaced(t *testing.T) {
	e := open(t, memlock.New(), core.WithOverrides(byName{}))
	mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}"}, core.Fields[string]())
	mustBe(t, e.Do(t.Context(), core.Policy{Name: "nightly", Key: "nightly"}, doNothing), nil)
	mustBe(t, e.ReplaceOverrides(byName{"stock": {}, "nightly": {}}), nil)
	mustBe(t, e.CheckOverrides(), nil)
	mustBe(t, e.ReplaceOverrides(byName{"stok": {}}), nil)
	if err := e.CheckOverrides(); err == nil || !strings.Contains(err.Error(), `did you mean "stock"?`) {
		t.Errorf("got %v", err)
	}
}

// Every call has a whole policy, the old one or the new one.
func TestOverridesMayBeReplacedWhileTheyAreUsed(t *testing.T) {
	e := open(t, memlock.New(), core.WithOverrides(byName{}))
	g := mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}", Wait: time.Hour, MaxHold: time.Hour}, core.Fields[string]())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := range 200 {
				switch i {
				case 0:
					d := time.Duration(n+1) * time.Minute
					mustBe(t, e.ReplaceOverrides(byName{"stock": {Wait: &d, MaxHold: &d}}), nil)
				case 1:
					mustGuard(t, e, core.Policy{Name: fmt.Sprint(n), Key: "k"}, core.Fields[string]())
				case 2:
					mustBe(t, e.Do(t.Context(), core.Policy{Name: "stock", Key: "stock:B", Wait: time.Hour, MaxHold: time.Hour}, doNothing), nil)
				default:
					if p := g.Policy(); p.Wait != p.MaxHold {
						t.Errorf("half of a policy: Wait %v, MaxHold %v", p.Wait, p.MaxHold)
					}
					mustBe(t, g.Do(t.Context(), "A", doNothing), nil)
				}
			}
		})
	}
	wg.Wait()
}
