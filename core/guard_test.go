package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

type deduction struct {
	Tenant string
	SKU    string
	Count  int
	Note   *string
	Parts  [5]string
}

func mustGuard[T any](t testing.TB, e *core.Engine, p core.Policy, r core.Resolver[T]) *core.Guard[T] {
	t.Helper()
	g, err := core.NewGuard(e, p, r)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestGuardLocksTheKeyThatItsSourceRenders(t *testing.T) {
	g := mustGuard(t, open(t, memlock.New()), core.Policy{Key: "stock:{Tenant}:{SKU}"}, core.Fields[deduction]())
	src, want := deduction{Tenant: "eu", SKU: "A:1"}, "stock:eu:A%3A1"

	err := g.Do(t.Context(), src, func(ctx context.Context) error {
		l, ok := core.LeaseFrom(ctx)
		if !ok || l.Key() != want {
			t.Errorf("the context's lease: %v, %t; want one of %s", l, ok, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.Acquire(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	if l.Key() != want {
		t.Errorf("the lease is of %q, want %q", l.Key(), want)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestGuardExcludesEqualSourcesOnly(t *testing.T) {
	g := mustGuard(t, open(t, memlock.New()), core.Policy{Key: "stock:{Tenant}:{SKU}"}, core.Fields[deduction]())
	err := g.Do(t.Context(), deduction{Tenant: "a:b", SKU: "c"}, func(context.Context) error {
		busy := g.Do(t.Context(), deduction{Tenant: "a:b", SKU: "c", Count: 5}, func(context.Context) error {
			t.Error("two calls with the same values ran at once")
			return nil
		})
		if !errors.Is(busy, core.ErrBusy) {
			t.Errorf("the same values: %v", busy)
		}
		return g.Do(t.Context(), deduction{Tenant: "a", SKU: "b:c"}, func(context.Context) error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGuardAndLiteralKeyMeetInOneLock(t *testing.T) {
	e := open(t, memlock.New())
	g := mustGuard(t, e, core.Policy{Key: "stock:{SKU}"}, core.Fields[deduction]())
	sku := "A/1 " + strings.Repeat("long", 100)
	err := g.Do(t.Context(), deduction{SKU: sku}, func(context.Context) error {
		return e.Do(t.Context(), core.Policy{Key: "stock:" + core.Escape(sku)}, func(context.Context) error { return nil })
	})
	if !errors.Is(err, core.ErrBusy) {
		t.Errorf("got %v", err)
	}
}

func TestGuardWithoutPlaceholdersIsOneLockForAll(t *testing.T) {
	g := mustGuard(t, open(t, memlock.New()), core.Policy{Keys: []string{"report:daily"}}, core.Fields[string]())
	err := g.Do(t.Context(), "one", func(context.Context) error {
		return g.Do(t.Context(), "other", func(context.Context) error { return nil })
	})
	var fault *core.Error
	if !errors.As(err, &fault) || !errors.Is(err, core.ErrBusy) || fault.Policy != "report:daily" {
		t.Errorf("got %v", err)
	}
}

func TestGuardIsNamedByItsPolicyOrItsTemplate(t *testing.T) {
	e := open(t, memlock.New())
	for _, tc := range []struct {
		policy core.Policy
		want   string
	}{
		{core.Policy{Name: "deduct", Key: "stock:{.}"}, "deduct"},
		{core.Policy{Key: "stock:{.}"}, "stock:{.}"},
		{core.Policy{Keys: []string{"stock:{.}"}}, "stock:{.}"},
		{core.Policy{Key: "report"}, "report"},
	} {
		if got := mustGuard(t, e, tc.policy, core.Fields[string]()).Name(); got != tc.want {
			t.Errorf("%+v is named %q, want %q", tc.policy, got, tc.want)
		}
	}
}

func TestGuardOfBadValueTakesNoLock(t *testing.T) {
	store := memlock.New()
	e := open(t, store)
	store.Fail(errors.New("the store was asked"))
	long := [5]string{}
	for i := range long {
		long[i] = strings.Repeat("v", 300)
	}
	broken := func(string) (core.Accessor[deduction], error) {
		return func(dst []byte, src deduction) ([]byte, error) {
			return append(dst, src.SKU...), fmt.Errorf("%s and %s: %w", src.SKU, src.SKU, core.ErrRepeated)
		}, nil
	}
	parts := func(name string) (core.Accessor[deduction], error) {
		return func(dst []byte, src deduction) ([]byte, error) { return append(dst, src.Parts[name[0]-'0']...), nil }, nil
	}
	for _, tc := range []struct {
		name        string
		policy      core.Policy
		resolver    core.Resolver[deduction]
		src         deduction
		placeholder string
		cause       error
	}{
		{"empty", core.Policy{Key: "stock:{SKU}"}, core.Fields[deduction](), deduction{}, "SKU", core.ErrMissing},
		{"nil", core.Policy{Key: "stock:{SKU}:{Note}"}, core.Fields[deduction](), deduction{SKU: "vv"}, "Note", core.ErrMissing},
		{"repeated", core.Policy{Key: "stock:{x}"}, broken, deduction{SKU: "vv"}, "x", core.ErrRepeated},
		{"too long", core.Policy{Key: "{0}:{1}:{2}:{3}:{4}:" + strings.Repeat("x", 20)}, parts, deduction{Parts: long}, "", core.ErrKey},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.policy.Name = "deduct"
			g := mustGuard(t, e, tc.policy, tc.resolver)
			err := g.Do(t.Context(), tc.src, func(context.Context) error {
				t.Error("the call ran")
				return nil
			})
			lease, aerr := g.Acquire(t.Context(), tc.src)
			if lease != nil {
				t.Error("a lease was returned")
			}
			for _, err := range []error{err, aerr} {
				var fault *core.Error
				if !errors.As(err, &fault) || !errors.Is(err, core.ErrKey) || !errors.Is(err, tc.cause) {
					t.Fatalf("got %v", err)
				}
				if fault.Op != "acquire" || fault.Policy != "deduct" || fault.Placeholder != tc.placeholder {
					t.Errorf("got %+v", fault)
				}
				if strings.Contains(err.Error(), "vv") {
					t.Errorf("%q shows a value", err)
				}
			}
		})
	}
}

func TestGuardKeyMayBeAsLongAsTheLimit(t *testing.T) {
	g := mustGuard(t, open(t, memlock.New()), core.Policy{Key: "{.}:" + strings.Repeat("x", core.MaxKeyLength-201)}, core.Fields[string]())
	if err := g.Do(t.Context(), strings.Repeat("v", 300), func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestGuardThatCannotWorkIsRefused(t *testing.T) {
	e := open(t, memlock.New())
	fields := core.Fields[deduction]()
	for _, tc := range []struct {
		name     string
		engine   *core.Engine
		policy   core.Policy
		resolver core.Resolver[deduction]
		want     []string
	}{
		{"no engine", nil, core.Policy{Key: "stock:{SKU}"}, fields, []string{`"stock:{SKU}"`, "engine is nil", "core.New"}},
		{"no resolver", e, core.Policy{Key: "stock:{SKU}"}, nil, []string{"resolver is nil", "core.Fields"}},
		{"no key", e, core.Policy{Name: "deduct"}, fields, []string{`"deduct"`, "neither Key nor Keys"}},
		{"malformed", e, core.Policy{Key: "stock:{SKU"}, fields, []string{`"stock:{SKU"`, "column 7", "never closed"}},
		{"misspelt", e, core.Policy{Name: "deduct", Key: "stock:{sku}"}, fields, []string{`"deduct"`, "column 7", "{sku}", "did you mean SKU?"}},
		{"in Keys", e, core.Policy{Keys: []string{"stock:{sku}"}}, fields, []string{`"stock:{sku}"`, "column 7"}},
		{"impossible", e, core.Policy{Key: "report", TTL: time.Nanosecond}, fields, []string{`"report"`, "TTL", "10ms"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g, err := core.NewGuard(tc.engine, tc.policy, tc.resolver)
			var fault *core.Error
			if g != nil || !errors.As(err, &fault) || !errors.Is(err, core.ErrPolicy) || fault.Op != "compile" {
				t.Fatalf("got %v, %v", g, err)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestLogTellsOfGuardLeasesThatNobodyReleases(t *testing.T) {
	var log buffer
	e := open(t, memlock.New(), core.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	g := mustGuard(t, e, core.Policy{Key: "stock:{.}"}, core.Fields[string]())
	func() {
		if _, err := g.Acquire(t.Context(), "secret"); err != nil {
			t.Fatal(err)
		}
	}()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), "stock:{.}"); runtime.GC() {
		if time.Now().After(deadline) {
			t.Fatal("no word of a lease that was dropped")
		}
	}
	if strings.Contains(log.String(), "secret") {
		t.Error("the log tells the value")
	}
}

func TestGuardServesConcurrentCalls(t *testing.T) {
	g := mustGuard(t, open(t, memlock.New()), core.Policy{Key: "stock:{Tenant}:{SKU}", Wait: core.Forever}, core.Fields[*deduction]())
	var (
		counts [4]int // one per key, guarded by its lock alone
		calls  sync.WaitGroup
	)
	for i := range 64 {
		calls.Go(func() {
			src := &deduction{Tenant: strings.Repeat("t", 10*(i%4)+1), SKU: "A"}
			for range 20 {
				if err := g.Do(t.Context(), src, func(context.Context) error { counts[i%4]++; return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	if counts != [4]int{320, 320, 320, 320} {
		t.Errorf("counted %v", counts)
	}
}

func BenchmarkGuardDo(b *testing.B) {
	g := mustGuard(b, open(b, memlock.New()), core.Policy{Key: "stock:{Tenant}:{SKU}"}, core.Fields[deduction]())
	src, nothing := deduction{Tenant: "eu", SKU: "A-1"}, func(context.Context) error { return nil }
	b.ReportAllocs()
	for b.Loop() {
		if err := g.Do(context.Background(), src, nothing); err != nil {
			b.Fatal(err)
		}
	}
}
