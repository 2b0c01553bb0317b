package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

func several(keys ...string) core.Policy { return core.Policy{Keys: keys, Wait: core.Forever} }

// isFree fails the test unless the key can be had at once.
func isFree(t *testing.T, e *core.Engine, key string) {
	t.Helper()
	l, err := e.Acquire(t.Context(), core.Policy{Key: key})
	if err != nil {
		t.Fatalf("%s: %v", key, err)
	}
	mustBe(t, l.Release(t.Context()), nil)
}

func TestSeveralKeysAreOneLease(t *testing.T) {
	d := memlock.New()
	e, other := open(t, d), open(t, d)
	l := mustAcquire(t, e, several("c", "a", "b", "a"))
	if got := l.Keys(); !slices.Equal(got, []string{"a", "b", "c"}) || l.Key() != "a" {
		t.Errorf("keys %v, first %s", got, l.Key())
	}
	for _, key := range l.Keys() {
		if l.TokenOf(key) <= 0 {
			t.Errorf("token %d of %s", l.TokenOf(key), key)
		}
		_, err := other.Acquire(t.Context(), core.Policy{Key: key})
		mustBe(t, err, core.ErrBusy)
		ctx := l.Context(t.Context())
		mustBe(t, core.AssertHeld(ctx, key), nil)
		_, err = e.Acquire(ctx, core.Policy{Key: key})
		mustBe(t, err, core.ErrDeadlock)
		if from, ok := core.LeaseFrom(ctx); !ok || from != l {
			t.Error("the context has another lease")
		}
		if all := core.LeasesFrom(ctx); len(all) != 1 {
			t.Errorf("the context has %d leases", len(all))
		}
	}
	if l.Token() != l.TokenOf("a") || l.TokenOf("d") != 0 {
		t.Error("a token is that of another key")
	}
	mustBe(t, core.AssertHeld(l.Context(t.Context()), "d"), core.ErrNotHeld)
	mustBe(t, core.AssertHeld(t.Context(), "a"), core.ErrNotHeld)
	mustBe(t, l.Check(t.Context()), nil)
	mustBe(t, l.Err(), nil)
	ctx := l.Context(t.Context())
	mustBe(t, l.Release(t.Context()), nil)
	mustBe(t, l.Release(t.Context()), core.ErrNotHeld)
	mustBe(t, l.Err(), core.ErrNotHeld)
	mustBe(t, core.AssertHeld(ctx, "a"), core.ErrNotHeld)
	<-l.Done()
	for _, key := range l.Keys() {
		isFree(t, other, key)
	}
}

func TestAllKeysOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		taken := mustAcquire(t, other, core.Policy{Key: "b"})
		for _, wait := range []time.Duration{0, time.Second} {
			p := several("a", "b", "c")
			p.Wait = wait
			start := time.Now()
			_, err := e.Acquire(t.Context(), p)
			mustBe(t, err, map[bool]error{true: core.ErrBusy, false: core.ErrTimeout}[wait == 0])
			if took := time.Since(start); took != wait {
				t.Errorf("waited %v of %v", took, wait)
			}
			isFree(t, other, "a")
			isFree(t, other, "c")
		}
		mustBe(t, taken.Release(t.Context()), nil)
	})
}

func TestWaitIsForAllKeysTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		first, second := mustAcquire(t, other, core.Policy{Key: "a"}), mustAcquire(t, other, core.Policy{Key: "b"})
		time.AfterFunc(700*time.Millisecond, func() { _ = first.Release(context.Background()) })
		p := several("b", "a")
		p.Wait = time.Second
		start := time.Now()
		_, err := e.Acquire(t.Context(), p)
		mustBe(t, err, core.ErrTimeout)
		if took := time.Since(start); took != time.Second {
			t.Errorf("waited %v", took)
		}
		mustBe(t, second.Release(t.Context()), nil)
	})
}

func TestLossOfOneKeyEndsTheHoldAndReleasesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, key := range []string{"a", "b", "c"} {
			d := memlock.New()
			e, other := open(t, d), open(t, d)
			told := false
			err := e.Do(t.Context(), several("a", "b", "c"), func(ctx context.Context) error {
				l, _ := core.LeaseFrom(ctx)
				d.Expire("test/" + key)
				<-ctx.Done()
				told = true
				if !errors.Is(context.Cause(ctx), core.ErrLost) {
					t.Errorf("the cause is %v", context.Cause(ctx))
				}
				<-l.Done()
				mustBe(t, l.Err(), core.ErrLost)
				mustBe(t, l.Check(ctx), core.ErrLost)
				if _, ok := core.LeaseFrom(ctx); ok {
					t.Error("the context still shows the lease as held")
				}
				return nil
			})
			mustBe(t, err, core.ErrLost)
			if !told {
				t.Error("the call did not run")
			}
			for _, key := range []string{"a", "b", "c"} {
				isFree(t, other, key)
			}
		}
	})
}

func TestCallersOfSeveralKeysNeverWaitInACircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		engines := []*core.Engine{open(t, d), open(t, d)}
		keys := []string{"a", "b", "c", "d"}
		var c crowd
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				for j := range 20 {
					var mine []string
					for k := range 2 + j%3 {
						mine = append(mine, keys[(i*7+j*3+k*(1+i%3))%4])
					}
					mustBe(t, engines[i%2].Do(t.Context(), several(mine...), func(context.Context) error {
						if slices.Contains(mine, "a") {
							defer c.enter(t, i, i%2, write)()
						}
						time.Sleep(time.Millisecond)
						return nil
					}), nil)
				}
			})
		}
		all.Wait()
	})
}

func TestLeaseThatEndsWhileOthersAreWaitedForIsNotHandedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		taken := mustAcquire(t, other, core.Policy{Key: "b"})
		time.AfterFunc(10*time.Second, func() { _ = taken.Release(context.Background()) })
		p := several("a", "b")
		p.TTL, p.NoRenew = time.Second, true
		_, err := e.Acquire(t.Context(), p)
		mustBe(t, err, core.ErrTimeout)
		synctest.Wait()
		isFree(t, other, "a")
		isFree(t, other, "b")
	})
}

func TestGuardTakesTheKeysOfAllTemplates(t *testing.T) {
	type move struct{ From, To string }
	e := open(t, memlock.New())
	g, err := core.NewGuard(e, core.Policy{Keys: []string{"account:{From}", "account:{To}"}}, core.Fields[move]())
	mustBe(t, err, nil)
	if want := "account:{From}+account:{To}"; g.Name() != want {
		t.Errorf("the name is %s", g.Name())
	}
	for _, tt := range []struct {
		move
		want string
	}{{move{"7", "3"}, "[account:3 account:7]"}, {move{"3", "7"}, "[account:3 account:7]"}, {move{"3", "3"}, "[account:3]"}} {
		l, err := g.Acquire(t.Context(), tt.move)
		mustBe(t, err, nil)
		if got := fmt.Sprint(l.Keys()); got != tt.want {
			t.Errorf("%v locks %s, want %s", tt.move, got, tt.want)
		}
		mustBe(t, l.Release(t.Context()), nil)
	}
	_, err = g.Acquire(t.Context(), move{From: "7"})
	mustBe(t, err, core.ErrKey)
	_, err = core.NewGuard(e, core.Policy{Keys: []string{"account:{From}", "account:{Too}"}}, core.Fields[move]())
	mustBe(t, err, core.ErrPolicy)
}

func TestNestedUseOfOneOfSeveralKeys(t *testing.T) {
	e := open(t, memlock.New())
	p := several("b", "c")
	p.Reentrant = true
	mustBe(t, e.Do(t.Context(), several("a", "b"), func(ctx context.Context) error {
		outer, _ := core.LeaseFrom(ctx)
		return e.Do(ctx, p, func(ctx context.Context) error {
			inner, _ := core.LeaseFrom(ctx)
			if inner.TokenOf("b") != outer.TokenOf("b") || inner.TokenOf("c") == 0 || inner.TokenOf("a") != 0 {
				t.Error("the nested use has other tokens")
			}
			mustBe(t, core.AssertHeld(ctx, "a"), nil)
			return nil
		})
	}), nil)
	for _, key := range []string{"a", "b", "c"} {
		isFree(t, e, key)
	}
}
