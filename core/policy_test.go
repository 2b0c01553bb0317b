package core_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/memlock"
)

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

func TestWithoutAnEngineOrAContextNothingRuns(t *testing.T) {
	e := open(t, memlock.New())
	g := mustGuard(t, e, core.Policy{Key: "k:{.}"}, core.Fields[string]())
	var none *core.Engine
	var noContext context.Context
	unreached := func(context.Context) error {
		t.Error("the call runs")
		return nil
	}
	for name, err := range map[string]error{
		"Do without an engine":           none.Do(t.Context(), core.Policy{Key: "k"}, unreached),
		"Acquire without an engine":      second(none.Acquire(t.Context(), core.Policy{Key: "k"})),
		"Ping without an engine":         none.Ping(t.Context()),
		"Inspect without an engine":      second(none.Inspect(t.Context(), "k")),
		"ForceRelease without an engine": second(none.ForceRelease(t.Context(), "k")),
		"Shutdown without an engine":     none.Shutdown(t.Context()),
		"Close without an engine":        none.Close(),
		"Do without a context":           e.Do(noContext, core.Policy{Key: "k"}, unreached),
		"Acquire without a context":      second(e.Acquire(noContext, core.Policy{Key: "k"})),
		"Guard.Do without a context":     g.Do(noContext, "a", unreached),
		"Guard.Enter without a context":  second(g.Enter(noContext, "a")),
		"Ping without a context":         e.Ping(noContext),
		"Shutdown without a context":     e.Shutdown(noContext),
	} {
		if _, what, _ := strings.Cut(name, " without "); !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), strings.TrimPrefix(strings.TrimPrefix(what, "an "), "a ")+" is nil") {
			t.Errorf("%s: %v; want what is nil", name, err)
		}
	}
}

// second is the error of what returns two values.
func second[V any](_ V, err error) error { return err }

func TestImpossiblePoliciesAreRefused(t *testing.T) {
	e := open(t, memlock.New())
	tests := []struct {
		name   string
		policy core.Policy
		says   string
	}{
		{"no key", core.Policy{}, "neither Key nor Keys"},
		{"both keys", core.Policy{Key: "a", Keys: []string{"b"}}, "both Key and Keys"},
		{"too many keys", core.Policy{Keys: slices.Repeat([]string{"a"}, 65)}, "at most 64"},
		{"an empty key of several", core.Policy{Keys: []string{"a", ""}}, "Keys[1] is empty"},
		{"a brace in one of several", core.Policy{Keys: []string{"a", "{b}"}}, "Guard"},
		{"braces", core.Policy{Key: "stock:{sku}"}, "Guard"},
		{"brace", core.Policy{Key: "stock:}"}, "Guard"},
		{"limit", core.Policy{Key: "a", Limit: 3}, "only a Semaphore"},
		{"shared limit", core.Policy{Key: "a", Mode: core.Shared, Limit: 3}, "only a Semaphore"},
		{"no limit", core.Policy{Key: "a", Mode: core.Semaphore}, "at least 1"},
		{"large limit", core.Policy{Key: "a", Mode: core.Semaphore, Limit: 1 << 20}, "at most"},
		{"unknown mode", core.Policy{Key: "a", Mode: 9}, "unknown"},
		{"wait", core.Policy{Key: "a", Wait: -1}, "core.Forever"},
		{"ttl", core.Policy{Key: "a", TTL: -1}, "default"},
		{"short ttl", core.Policy{Key: "a", TTL: 1}, "at least"},
		{"long ttl", core.Policy{Key: "a", TTL: 1 << 62}, "at most"},
		{"max hold", core.Policy{Key: "a", MaxHold: -1}, "no bound"},
		{"min hold", core.Policy{Key: "a", MinHold: -1}, "none"},
		{"min over max", core.Policy{Key: "a", MinHold: 2 * time.Second, MaxHold: time.Second}, "longer than"},
		{"linger", core.Policy{Key: "a", Linger: -1}, "none"},
		{"long linger", core.Policy{Key: "a", Linger: 1 << 62}, "at most"},
		{"shared linger", core.Policy{Key: "a", Mode: core.Shared, Linger: time.Second}, "Exclusive"},
		{"strict linger", core.Policy{Key: "a", Fairness: core.Strict, Linger: time.Second}, "Strict"},
		{"linger and min hold", core.Policy{Key: "a", MinHold: time.Second, Linger: time.Second}, "MinHold"},
		{"wait without its unit", core.Policy{Key: "a", Wait: 2}, "Wait is 2ns, in which no store answers; durations have units, as in 2*time.Second"},
		{"short wait", core.Policy{Key: "a", Wait: 500 * time.Microsecond}, "in which no store answers; use 0 to try once"},
		{"ttl without its unit", core.Policy{Key: "a", TTL: 30}, "as in 30*time.Second"},
		{"max hold of centuries", core.Policy{Key: "a", MaxHold: 270 * core.MaxTTL}, "at most 8760h0m0s"},
		{"wait of milliseconds without its unit", core.Policy{Key: "a", Wait: 2000}, "as in 2000*time.Millisecond"},
		{"max hold without its unit", core.Policy{Key: "a", MaxHold: 60}, "as in 60*time.Second"},
		{"min hold without its unit", core.Policy{Key: "a", MinHold: 5}, "as in 5*time.Second"},
		{"linger without its unit", core.Policy{Key: "a", Linger: 1}, "as in 1*time.Second"},
		{"no renewal and a longer hold", core.Policy{Key: "a", NoRenew: true, MaxHold: time.Minute}, "NoRenew ends the lease with its TTL of 30s"},
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
	for _, o := range []core.Option{core.WithNamespace("a/b"), core.WithMaxHeld(0), core.WithMaxWaiters(-1), core.WithStoreTimeout(0), core.WithStoreTimeout(3)} {
		if _, err := core.New(memlock.New(), o); !errors.Is(err, core.ErrPolicy) {
			t.Errorf("bad option: %v", err)
		}
	}
}
