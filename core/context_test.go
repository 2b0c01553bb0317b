package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func TestContextOfTheGuardedCall(t *testing.T) {
	type key struct{}
	e := open(t, memlock.New())
	parent, cancel := context.WithTimeout(context.WithValue(t.Context(), key{}, "value"), time.Hour)
	var kept context.Context
	err := e.Do(parent, core.Policy{Key: "k"}, func(ctx context.Context) error {
		kept = ctx
		if ctx.Value(key{}) != "value" {
			t.Error("the caller's values are gone")
		}
		want, _ := parent.Deadline()
		if got, ok := ctx.Deadline(); !ok || !got.Equal(want) {
			t.Error("the caller's deadline is gone")
		}
		cancel()
		<-ctx.Done()
		if l, ok := core.LeaseFrom(ctx); !ok || l.Err() != nil {
			t.Error("the caller's cancellation ended the hold")
		}
		return nil
	})
	mustBe(t, err, nil)
	if _, ok := core.LeaseFrom(kept); ok {
		t.Error("a lease is found after the call")
	}
}

func TestReentrance(t *testing.T) {
	d := memlock.New()
	e, other := open(t, d), open(t, d)
	plain, nesting := core.Policy{Key: "k"}, core.Policy{Key: "k", Reentrant: true}
	err := e.Do(t.Context(), plain, func(ctx context.Context) error {
		outer, _ := core.LeaseFrom(ctx)
		_, err := e.Acquire(ctx, core.Policy{Key: "k", Wait: core.Forever})
		mustBe(t, err, core.ErrDeadlock)
		_, err = e.Acquire(core.Detach(ctx), plain)
		mustBe(t, err, core.ErrBusy)
		_, err = other.Acquire(ctx, plain)
		mustBe(t, err, core.ErrBusy)
		mustBe(t, e.Do(ctx, core.Policy{Key: "elsewhere"}, func(ctx context.Context) error {
			return e.Do(ctx, nesting, func(ctx context.Context) error {
				if l, ok := core.LeaseFrom(ctx); !ok || l.Token() != outer.Token() {
					t.Error("a nested use has another token")
				}
				return nil
			})
		}), nil)
		return nil
	})
	mustBe(t, err, nil)
}

func TestNestedUseDelaysTheRelease(t *testing.T) {
	e := open(t, memlock.New())
	outer := mustAcquire(t, e, core.Policy{Key: "k"})
	inner, err := e.Acquire(outer.Context(t.Context()), core.Policy{Key: "k", Reentrant: true})
	mustBe(t, err, nil)
	mustBe(t, outer.Release(t.Context()), nil)
	mustBe(t, inner.Err(), nil)
	_, err = e.Acquire(t.Context(), core.Policy{Key: "k"})
	mustBe(t, err, core.ErrBusy)
	mustBe(t, inner.Release(t.Context()), nil)
	mustBe(t, inner.Release(t.Context()), core.ErrNotHeld)
	mustBe(t, mustAcquire(t, e, core.Policy{Key: "k"}).Release(t.Context()), nil)
}
