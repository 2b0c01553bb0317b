package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func doNothing(context.Context) error { return nil }

// override returns the option for one policy.
func override(name string, o core.Override) core.Option {
	return core.WithOverrides(map[string]core.Override{name: o})
}

func TestOverrideOfWaitIsHowLongCallersWait(t *testing.T) {
	literal := func(ctx context.Context, e *core.Engine, _ *core.Guard[string]) error {
		return e.Do(ctx, core.Policy{Name: "stock", Key: "stock:A"}, doNothing)
	}
	acquire := func(ctx context.Context, e *core.Engine, _ *core.Guard[string]) error {
		_, err := e.Acquire(ctx, core.Policy{Name: "stock", Keys: []string{"stock:A", "stock:B"}})
		return err
	}
	guard := func(ctx context.Context, _ *core.Engine, g *core.Guard[string]) error {
		return g.Do(ctx, "A", doNothing)
	}
	for _, tc := range []struct {
		name  string
		call  func(context.Context, *core.Engine, *core.Guard[string]) error
		wait  time.Duration
		after time.Duration
		want  error
	}{
		{"Do", literal, 2 * time.Second, 2 * time.Second, core.ErrTimeout},
		{"Acquire of several", acquire, 3 * time.Second, 3 * time.Second, core.ErrTimeout},
		{"guard", guard, time.Second, time.Second, core.ErrTimeout},
		{"guard that is to try once", guard, 0, 0, core.ErrBusy},
		{"guard that is to wait for ever", guard, core.Forever, time.Minute, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				holder := open(t, d)
				e := open(t, d, override("stock", core.Override{Wait: &tc.wait}))
				program := 5 * time.Second
				if tc.wait > program {
					program = 0
				}
				g := mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}", Wait: program}, core.Fields[string]())
				held := mustAcquire(t, holder, core.Policy{Key: "stock:A"})
				time.AfterFunc(time.Minute, func() { mustBe(t, held.Release(t.Context()), nil) })
				start := time.Now()
				mustBe(t, tc.call(t.Context(), e, g), tc.want)
				if took := time.Since(start).Round(time.Second); took != tc.after {
					t.Errorf("ended after %v, want %v", took, tc.after)
				}
				time.Sleep(2 * time.Minute)
			})
		})
	}
}

func TestOverrideSetsWhatItStatesAndKeepsTheRest(t *testing.T) {
	all := core.Override{Wait: new(time.Second), TTL: new(2 * time.Hour), MaxHold: new(time.Hour), Mode: new(core.Semaphore), Limit: new(7)}
	own := core.Policy{
		Name: "stock", Key: "stock:{.}", Wait: 2 * time.Second, TTL: 3 * time.Hour, MaxHold: 2 * time.Hour, MinHold: time.Second,
		Mode: core.Semaphore, Limit: 3, Reentrant: true, Tokens: core.ClockTokens, Fairness: core.Strict, NoRenew: true,
	}
	for _, tc := range []struct {
		name     string
		override core.Override
		change   func(*core.Policy)
	}{
		{"nothing", core.Override{}, func(*core.Policy) {}},
		{"Wait", core.Override{Wait: all.Wait}, func(p *core.Policy) { p.Wait = time.Second }},
		{"TTL", core.Override{TTL: all.TTL}, func(p *core.Policy) { p.TTL = 2 * time.Hour }},
		{"MaxHold", core.Override{MaxHold: all.MaxHold}, func(p *core.Policy) { p.MaxHold = time.Hour }},
		{"Limit", core.Override{Limit: all.Limit}, func(p *core.Policy) { p.Limit = 7 }},
		{"Mode", core.Override{Mode: new(core.Shared)}, func(p *core.Policy) { p.Mode, p.Limit = core.Shared, 0 }},
		{"Mode, with no Limit", core.Override{Mode: new(core.Shared), Limit: new(0)}, func(p *core.Policy) { p.Mode, p.Limit = core.Shared, 0 }},
		{"Release", core.Override{Release: new(core.Sent)}, func(p *core.Policy) { p.Release = core.Sent }},
		{"all", all, func(p *core.Policy) { p.Wait, p.TTL, p.MaxHold, p.Limit = time.Second, 2*time.Hour, time.Hour, 7 }},
		{"all to zero", core.Override{Wait: new(time.Duration(0)), TTL: new(time.Duration(0)), MaxHold: new(time.Duration(0)), Mode: new(core.Exclusive), Limit: new(0)}, func(p *core.Policy) {
			p.Wait, p.TTL, p.MaxHold, p.Mode, p.Limit = 0, core.DefaultTTL, 0, core.Exclusive, 0
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := open(t, memlock.New(), override("stock", tc.override))
			want, other := own, own
			tc.change(&want)
			other.Name = "" // the template
			if got := mustGuard(t, e, own, core.Fields[string]()).Policy(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
			other.Key, want = "stock:{.}:other", other
			want.Name, want.Key = "stock:{.}:other", "stock:{.}:other"
			if got := mustGuard(t, e, other, core.Fields[string]()).Policy(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("a policy of another name: got %+v, want %+v", got, want)
			}
		})
	}
}

func TestOverrideIsForEveryPolicyOfItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		holder, e := open(t, d), open(t, d, override("stock:{.}", core.Override{Wait: new(2 * time.Second)}))
		guards := []*core.Guard[string]{
			mustGuard(t, e, core.Policy{Key: "stock:{.}"}, core.Fields[string]()),
			mustGuard(t, e, core.Policy{Keys: []string{"stock:{.}"}, Wait: time.Hour}, core.Fields[string]()),
			mustGuard(t, e, core.Policy{Name: "stock:{.}", Key: "stock:{.}", Mode: core.Shared}, core.Fields[string]()),
		}
		held := mustAcquire(t, holder, core.Policy{Key: "stock:A"})
		start := time.Now()
		var wg sync.WaitGroup
		for _, g := range guards {
			wg.Go(func() { mustBe(t, g.Do(t.Context(), "A", doNothing), core.ErrTimeout) })
		}
		// A key is not a name: policies with literal keys have none unless given one.
		mustBe(t, e.Do(t.Context(), core.Policy{Key: "stock:A"}, doNothing), core.ErrBusy)
		wg.Wait()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("ended after %v", took)
		}
		mustBe(t, held.Release(t.Context()), nil)
	})
}

func TestOverridesAreCopied(t *testing.T) {
	wait := 2 * time.Second
	byName := map[string]core.Override{"stock": {Wait: &wait}}
	e := open(t, memlock.New(), nil, core.WithOverrides(map[string]core.Override{"refund": {}}), core.WithOverrides(byName))
	wait = time.Hour
	byName["refund"] = core.Override{Wait: &wait}
	for name, want := range map[string]time.Duration{"stock": 2 * time.Second, "refund": 0} {
		if got := mustGuard(t, e, core.Policy{Name: name, Key: "k"}, core.Fields[string]()).Policy().Wait; got != want {
			t.Errorf("%s waits for %v, want %v", name, got, want)
		}
	}
	mustBe(t, e.CheckOverrides(), nil)
}

func TestPolicyThatAnOverrideMakesImpossibleIsRefusedAndSaysSo(t *testing.T) {
	const from = "core.WithOverrides"
	for _, tc := range []struct {
		name     string
		override core.Override
		policy   core.Policy
		says     string // without the driver's name
	}{
		{"MaxHold", core.Override{TTL: new(time.Second), MaxHold: new(2 * time.Second)}, core.Policy{MinHold: 5 * time.Second}, "MinHold 5s is longer than MaxHold 2s; make MinHold shorter, or MaxHold longer; from core.WithOverrides: TTL, MaxHold"},
		{"Mode without Limit", core.Override{Mode: new(core.Semaphore)}, core.Policy{}, "Limit is 0; a Semaphore needs at least 1; from core.WithOverrides: Mode"},
		{"Limit", core.Override{Limit: new(3)}, core.Policy{}, "only a Semaphore has a Limit; from core.WithOverrides: Limit"},
		{"Linger", core.Override{Mode: new(core.Shared)}, core.Policy{Linger: time.Second}, "only an Exclusive lease can linger; from core.WithOverrides: Mode"},
		{"the program's own Limit", core.Override{Mode: new(core.Shared)}, core.Policy{Limit: 3}, "Limit is 3 but Mode is shared; only a Semaphore has a Limit"},
		{"the program's own fault", core.Override{Wait: new(time.Second)}, core.Policy{Linger: -1}, "Linger is -1ns; use 0 for none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := open(t, memlock.New(), override("stock", tc.override))
			tc.policy.Name, tc.policy.Key = "stock", "stock:A"
			_, guarded := core.NewGuard(e, tc.policy, core.Fields[string]())
			_, acquired := e.Acquire(t.Context(), tc.policy)
			for _, err := range []error{guarded, acquired, e.Do(t.Context(), tc.policy, doNothing)} {
				mustBe(t, err, core.ErrPolicy)
				if err == nil || !strings.HasPrefix(err.Error(), `lock compile "stock": `) || !strings.HasSuffix(err.Error(), tc.says+" (memory)") || strings.Count(err.Error(), from) != strings.Count(tc.says, from) {
					t.Errorf("got %v; want %q", err, tc.says)
				}
			}
			mustBe(t, e.CheckOverrides(), nil) // the name was right
		})
	}
}

func TestOverrideThatNoPolicyCouldHaveIsRefusedWithTheEngine(t *testing.T) {
	for name, tc := range map[string]struct {
		override core.Override
		says     string
	}{
		"wait":      {core.Override{Wait: new(-time.Second)}, "Wait is -1s; use 0 to try once, or core.Forever; from core.WithOverrides: Wait"},
		"ttl":       {core.Override{TTL: new(time.Nanosecond)}, "at least"},
		"long ttl":  {core.Override{TTL: new(core.MaxTTL + 1)}, "at most"},
		"max hold":  {core.Override{MaxHold: new(-time.Second)}, "no bound"},
		"mode":      {core.Override{Mode: new(core.Mode(9))}, "unknown"},
		"limit":     {core.Override{Limit: new(-1)}, "at least 1; from core.WithOverrides: Limit"},
		"max limit": {core.Override{Limit: new(core.MaxLimit + 1)}, "at most"},
		"no limit":  {core.Override{Mode: new(core.Semaphore), Limit: new(0)}, "from core.WithOverrides: Mode, Limit"},
		"with mode": {core.Override{Mode: new(core.Shared), Limit: new(2)}, "only a Semaphore"},
	} {
		e, err := core.New(memlock.New(), override(name, tc.override))
		mustBe(t, err, core.ErrPolicy)
		if e != nil || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("lock override %q: ", name)) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
	_, err := core.New(memlock.New(), core.WithOverrides(map[string]core.Override{"a": {Wait: new(-time.Second)}, "": {}, "b": {TTL: new(-time.Second)}, "c": {}}))
	if err == nil || strings.Count(err.Error(), "lock override") != 3 {
		t.Errorf("of three faults: %v", err)
	}
	if e, err := core.New(memlock.New(), core.WithNamespace("test"), override("s", core.Override{Limit: new(3)})); err != nil {
		t.Errorf("a Limit for a semaphore of the program: %v", err)
	} else {
		mustBe(t, e.Close(), nil)
	}
}

func TestNameThatNoPolicyHasIsFoundWithASuggestion(t *testing.T) {
	none := core.Override{}
	e := open(t, memlock.New(), core.WithOverrides(map[string]core.Override{"stok:{.}": none, "stock:{.}": none, "nightly": none, "elsewhere": none}))
	err := e.CheckOverrides()
	mustBe(t, err, core.ErrPolicy)
	if err == nil || strings.Count(err.Error(), "no policy has this name, or any; check the overrides after") != 4 {
		t.Errorf("before any policy: %v", err)
	}
	mustGuard(t, e, core.Policy{Key: "stock:{.}"}, core.Fields[string]())
	mustBe(t, e.Do(t.Context(), core.Policy{Name: "nightly", Key: "job:nightly"}, doNothing), nil)
	want := `lock override "elsewhere": invalid lock policy: no policy has this name; there are ["nightly" "stock:{.}"] (memory)
lock override "stok:{.}": invalid lock policy: no policy has this name; did you mean "stock:{.}"? (memory)`
	if err := e.CheckOverrides(); err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	// A name counts also if its policy is refused for another reason.
	_, refused := core.NewGuard(e, core.Policy{Name: "elsewhere", Key: "{"}, core.Fields[string]())
	mustBe(t, refused, core.ErrPolicy)
	for i := range 20 {
		mustGuard(t, e, core.Policy{Name: fmt.Sprint(i), Key: "k"}, core.Fields[string]())
	}
	mustGuard(t, e, core.Policy{Name: "stok:{.}", Key: "k"}, core.Fields[string]())
	mustBe(t, e.CheckOverrides(), nil)
	mustBe(t, open(t, memlock.New()).CheckOverrides(), nil)
}

func TestUnusedOverrideIsWarnedOfOnceUnlessItIsCheckedFor(t *testing.T) {
	for _, tc := range []struct {
		name    string
		options []core.Option
		before  func(*core.Engine)
		want    int
	}{
		{"none", nil, func(*core.Engine) {}, 0},
		{"unused", []core.Option{override("stok", core.Override{})}, func(*core.Engine) {}, 1},
		{"checked", []core.Option{override("stok", core.Override{})}, func(e *core.Engine) { _ = e.CheckOverrides() }, 0},
		{"used", []core.Option{override("stock", core.Override{})}, func(*core.Engine) {}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			o := append(tc.options, core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			e := open(t, memlock.New(), o...)
			g := mustGuard(t, e, core.Policy{Name: "stock", Key: "stock:{.}"}, core.Fields[string]())
			tc.before(e)
			for range 3 {
				mustBe(t, g.Do(t.Context(), "A", doNothing), nil)
			}
			if got := strings.Count(log.String(), "overrides are unused"); got != tc.want {
				t.Errorf("warned %d times: %s", got, &log)
			}
			if tc.want > 0 && !strings.Contains(log.String(), "lock.names=[stok]") {
				t.Errorf("the warning does not say the name: %s", &log)
			}
		})
	}
}

func TestOverrideThatLetsMoreHoldTogetherIsWarnedOfOnce(t *testing.T) {
	modes := []core.Policy{{Mode: core.Exclusive}, {Mode: core.Semaphore, Limit: 2}, {Mode: core.Shared}}
	for i, own := range modes {
		for j, other := range modes {
			t.Run(own.Mode.String()+" to "+other.Mode.String(), func(t *testing.T) {
				var log bytes.Buffer
				e := open(t, memlock.New(), override("stock", core.Override{Mode: &other.Mode, Limit: &other.Limit}),
					core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
				own.Name, own.Key = "stock", "stock:A"
				for range 3 {
					mustBe(t, e.Do(t.Context(), own, doNothing), nil)
				}
				want := 0
				if j > i {
					want = 1
				}
				if got := strings.Count(log.String(), "lock.name=stock lock.mode="+other.Mode.String()+" program="+own.Mode.String()); got != want {
					t.Errorf("warned %d times: %s", got, &log)
				}
			})
		}
	}
}

func TestOverridesMayBeUsedAndCheckedAtOnce(t *testing.T) {
	byName := map[string]core.Override{}
	for i := range 8 {
		byName[fmt.Sprint(i)] = core.Override{Wait: new(core.Forever)}
	}
	e := open(t, memlock.New(), core.WithOverrides(byName))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 50 {
				mustBe(t, e.Do(t.Context(), core.Policy{Name: fmt.Sprint(i), Key: "k"}, doNothing), nil)
				if err := e.CheckOverrides(); err != nil && !errors.Is(err, core.ErrPolicy) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	mustBe(t, e.CheckOverrides(), nil)
}
