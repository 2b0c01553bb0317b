package fence_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/core/memlock"
)

// service is a process with a lock engine.
func service(t *testing.T, d driver.Driver) *core.Engine {
	t.Helper()
	e, err := core.New(d, core.WithNamespace("shop"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// meanwhile runs call until the end of the test.
func meanwhile(t *testing.T, e *core.Engine, p core.Policy, lasts time.Duration) {
	var calls sync.WaitGroup
	calls.Go(func() {
		_ = e.Do(t.Context(), p, func(context.Context) error { time.Sleep(lasts); return nil }) // it may be refused
	})
	t.Cleanup(calls.Wait)
}

// sent is the context of a request that a call with ctx has sent.
func sent(t *testing.T, ctx context.Context) context.Context {
	return fence.NewContext(t.Context(), fence.All(ctx)...)
}

func TestRequestOfTheHolderIsRefusedInsteadOfWaiting(t *testing.T) {
	policy := func(m core.Mode, limit int) core.Policy {
		return core.Policy{Key: "order:7", Mode: m, Limit: limit, Wait: 5 * time.Second}
	}
	alone, read, one, two := policy(core.Exclusive, 0), policy(core.Shared, 0), policy(core.Semaphore, 1), policy(core.Semaphore, 2)
	for name, tc := range map[string]struct {
		holds, wants core.Policy
		other        *core.Policy // of a third service, which holds or waits as well
		want         error
	}{
		"exclusive":                             {holds: alone, wants: alone, want: core.ErrDeadlock},
		"a reader of the writer":                {holds: alone, wants: read, want: core.ErrDeadlock},
		"a writer of the reader":                {holds: read, wants: alone, want: core.ErrDeadlock},
		"a writer of one of two readers":        {holds: read, wants: alone, other: &read, want: core.ErrDeadlock},
		"a reader behind a writer who gives up": {holds: read, wants: read, other: &alone},
		"the only slot":                         {holds: one, wants: one, want: core.ErrDeadlock},
		"one of two slots":                      {holds: two, wants: two},
		"a slot while the other one is held":    {holds: two, wants: two, other: &two},
	} {
		for _, where := range []string{"in another process", "in the same process"} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memlock.New()
					first, third := service(t, store), service(t, store)
					second := first
					if where == "in another process" {
						second = service(t, store)
					}
					if tc.other != nil {
						p := *tc.other
						p.Wait = 2 * time.Second
						meanwhile(t, third, p, 3*time.Second)
						if p.Mode != core.Exclusive {
							synctest.Wait()
						}
					}
					err := first.Do(t.Context(), tc.holds, func(ctx context.Context) error {
						if tc.other != nil {
							time.Sleep(time.Second)
						}
						begun := time.Now()
						err := second.Do(sent(t, ctx), tc.wants, func(context.Context) error { return nil })
						if took := time.Since(begun); tc.want != nil && took > 200*time.Millisecond {
							t.Errorf("it was told after %v", took)
						}
						return err
					})
					if !errors.Is(err, tc.want) {
						t.Errorf("got %v; want %v", err, tc.want)
					}
				})
			})
		}
	}
}

func TestTokenOfAHoldThatIsOverRefusesNobody(t *testing.T) {
	p := core.Policy{Key: "order:7", Wait: 5 * time.Second}
	lingers := p
	lingers.Linger = time.Minute
	for name, holder := range map[string]func(t *testing.T, e *core.Engine) context.Context{
		"an earlier grant": func(t *testing.T, e *core.Engine) (over context.Context) {
			_ = e.Do(t.Context(), p, func(ctx context.Context) error { over = sent(t, ctx); return nil })
			meanwhile(t, e, p, time.Second)
			return over
		},
		"a lease that lingers": func(t *testing.T, e *core.Engine) (over context.Context) {
			_ = e.Do(t.Context(), lingers, func(ctx context.Context) error { over = sent(t, ctx); return nil })
			return over
		},
		"a later hold on the same lease": func(t *testing.T, e *core.Engine) (over context.Context) {
			_ = e.Do(t.Context(), lingers, func(ctx context.Context) error { over = sent(t, ctx); return nil })
			meanwhile(t, e, lingers, 50*time.Millisecond)
			return over
		},
		"another key": func(t *testing.T, e *core.Engine) context.Context {
			other := p
			other.Key = "order:8"
			l, err := e.Acquire(t.Context(), other)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Release(context.WithoutCancel(t.Context())) })
			meanwhile(t, e, p, time.Second)
			return sent(t, l.Context(t.Context()))
		},
		"forged numbers": func(t *testing.T, e *core.Engine) context.Context {
			meanwhile(t, e, p, time.Second)
			return fence.NewContext(t.Context(), fence.Token{Key: "order:7", Number: 1}, fence.Token{Key: "order:7", Number: 1<<63 - 1})
		},
		"work that the holder does not wait for": func(t *testing.T, e *core.Engine) (over context.Context) {
			started := make(chan context.Context)
			var call sync.WaitGroup
			call.Go(func() {
				_ = e.Do(t.Context(), p, func(ctx context.Context) error {
					started <- sent(t, core.Detach(ctx))
					time.Sleep(time.Second)
					return nil
				})
			})
			t.Cleanup(call.Wait)
			return <-started
		},
	} {
		for _, where := range []string{"in another process", "in the same process"} {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					store := memlock.New()
					first := service(t, store)
					second := first
					if where == "in another process" {
						second = service(t, store)
					}
					ctx := holder(t, first)
					synctest.Wait()
					if err := second.Do(ctx, p, func(context.Context) error { return nil }); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
