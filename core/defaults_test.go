package core_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestDefaultsFillWhatAPolicyLeavesOut(t *testing.T) {
	for _, tc := range []struct {
		name     string
		defaults core.Defaults
		policy   core.Policy
		override core.Override
		want     core.Policy // Wait, TTL and MaxHold
	}{
		{"none", core.Defaults{}, core.Policy{}, core.Override{}, core.Policy{TTL: core.DefaultTTL}},
		{"all", core.Defaults{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour}, core.Policy{}, core.Override{}, core.Policy{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour}},
		{"what is stated stays", core.Defaults{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour}, core.Policy{Wait: 2 * time.Second, MaxHold: 2 * time.Hour}, core.Override{}, core.Policy{Wait: 2 * time.Second, TTL: time.Minute, MaxHold: 2 * time.Hour}},
		{"the opposite of a default", core.Defaults{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour}, core.Policy{Wait: core.TryOnce, TTL: core.DefaultTTL, MaxHold: core.Forever}, core.Override{}, core.Policy{TTL: core.DefaultTTL}},
		{"the opposite of no default", core.Defaults{}, core.Policy{Wait: core.TryOnce, MaxHold: core.Forever}, core.Override{}, core.Policy{TTL: core.DefaultTTL}},
		{"for ever", core.Defaults{Wait: core.Forever}, core.Policy{}, core.Override{}, core.Policy{Wait: core.Forever, TTL: core.DefaultTTL}},
		{"defaults that say nothing", core.Defaults{Wait: core.TryOnce, MaxHold: core.Forever}, core.Policy{}, core.Override{}, core.Policy{TTL: core.DefaultTTL}},
		{"an override on top", core.Defaults{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour}, core.Policy{}, core.Override{Wait: new(3 * time.Second)}, core.Policy{Wait: 3 * time.Second, TTL: time.Minute, MaxHold: time.Hour}},
		{"an override to zero", core.Defaults{Wait: time.Second, TTL: time.Minute, MaxHold: time.Hour}, core.Policy{}, core.Override{Wait: new(time.Duration(0)), TTL: new(time.Duration(0)), MaxHold: new(time.Duration(0))}, core.Policy{TTL: core.DefaultTTL}},
		{"an override that tries once", core.Defaults{Wait: time.Second}, core.Policy{}, core.Override{Wait: new(core.TryOnce), MaxHold: new(core.Forever)}, core.Policy{TTL: core.DefaultTTL}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := open(t, memlock.New(), core.WithDefaults(tc.defaults), override("stock", tc.override))
			tc.policy.Name, tc.policy.Key = "stock", "stock:{.}"
			tc.want.Name, tc.want.Key = "stock", "stock:{.}"
			if got := mustGuard(t, e, tc.policy, core.Fields[string]()).Policy(); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestDefaultWaitIsHowLongEveryCallerWaitsButWhoTriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		holder, e := open(t, d), open(t, d, core.WithDefaults(core.Defaults{Wait: 2 * time.Second}))
		held := mustAcquire(t, holder, core.Policy{Key: "stock:A"})
		g := mustGuard(t, e, core.Policy{Key: "stock:{.}"}, core.Fields[string]())
		once := mustGuard(t, e, core.Policy{Key: "stock:{.}", Wait: core.TryOnce}, core.Fields[string]())
		for name, tc := range map[string]struct {
			call  func() error
			want  error
			after time.Duration
		}{
			"guard":               {func() error { return g.Do(t.Context(), "A", doNothing) }, core.ErrTimeout, 2 * time.Second},
			"guard that tries":    {func() error { return once.Do(t.Context(), "A", doNothing) }, core.ErrBusy, 0},
			"Do":                  {func() error { return e.Do(t.Context(), core.Policy{Key: "stock:A"}, doNothing) }, core.ErrTimeout, 2 * time.Second},
			"Do that tries":       {func() error { return e.Do(t.Context(), core.Policy{Key: "stock:A", Wait: core.TryOnce}, doNothing) }, core.ErrBusy, 0},
			"Acquire of several":  {func() error { return acquire(t.Context(), e, "stock:A", "stock:B") }, core.ErrTimeout, 2 * time.Second},
			"Acquire of the free": {func() error { return acquire(t.Context(), e, "stock:C") }, nil, 0},
		} {
			start := time.Now()
			mustBe(t, tc.call(), tc.want)
			if took := time.Since(start); took != tc.after {
				t.Errorf("%s ended after %v, want %v", name, took, tc.after)
			}
		}
		mustBe(t, held.Release(t.Context()), nil)
	})
}

func acquire(ctx context.Context, e *core.Engine, keys ...string) error {
	l, err := e.Acquire(ctx, core.Policy{Keys: keys})
	if err != nil {
		return err
	}
	return l.Release(ctx)
}

func TestDefaultsThatNoPolicyCouldHaveAreRefusedWithTheEngine(t *testing.T) {
	for want, d := range map[string]core.Defaults{
		"lock defaults: invalid lock policy: Wait is -1s; use 0 to try once, or core.Forever; from core.WithDefaults: Wait (memory)":                                                      {Wait: -time.Second},
		"lock defaults: invalid lock policy: TTL is 8760h0m0.000000001s; at most 8760h0m0s is possible; from core.WithDefaults: Wait, TTL (memory)":                                       {Wait: time.Second, TTL: core.MaxTTL + 1},
		"lock defaults: invalid lock policy: MaxHold is -1ns; use 0 for no bound; from core.WithDefaults: MaxHold (memory)":                                                               {MaxHold: -1},
		"lock defaults: invalid lock policy: Wait is 2ns, in which no store answers; durations have units, as in 2*time.Second; use 0 to try once; from core.WithDefaults: Wait (memory)": {Wait: 2},
	} {
		e, err := core.New(memlock.New(), core.WithDefaults(d))
		mustBe(t, err, core.ErrPolicy)
		if e != nil || err == nil || err.Error() != want {
			t.Errorf("got %v\nwant %s", err, want)
		}
	}
}

func TestPolicyThatADefaultMakesImpossibleSaysSo(t *testing.T) {
	for _, tc := range []struct {
		name     string
		policy   core.Policy
		override core.Override
		says     string
	}{
		{"MinHold", core.Policy{MinHold: time.Hour}, core.Override{}, "MinHold 1h0m0s is longer than MaxHold 1m0s; make MinHold shorter, or MaxHold longer; from core.WithDefaults: Wait, MaxHold"},
		{"NoRenew", core.Policy{NoRenew: true, Wait: time.Second}, core.Override{}, "make the TTL longer; from core.WithDefaults: MaxHold"},
		{"the policy's own", core.Policy{Linger: -1}, core.Override{}, "Linger is -1ns; use 0 for none"},
		{"an override's", core.Policy{}, core.Override{Limit: new(2)}, "only a Semaphore has a Limit; from core.WithOverrides: Limit"},
		{"both together", core.Policy{NoRenew: true, TTL: time.Hour}, core.Override{TTL: new(time.Second)}, "make the TTL longer; from core.WithDefaults: Wait, MaxHold; from core.WithOverrides: TTL"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := open(t, memlock.New(), core.WithDefaults(core.Defaults{Wait: time.Second, MaxHold: time.Minute}), override("stock", tc.override))
			tc.policy.Name, tc.policy.Key = "stock", "stock:A"
			err := e.Do(t.Context(), tc.policy, doNothing)
			mustBe(t, err, core.ErrPolicy)
			if err == nil || !strings.HasSuffix(err.Error(), tc.says+" (memory)") {
				t.Errorf("got %v; want %q", err, tc.says)
			}
		})
	}
}
