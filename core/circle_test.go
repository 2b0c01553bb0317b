package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/drivertest/counts"
	"github.com/lockaround/lockaround/core/memlock"
)

func takes(key string) core.Policy {
	return core.Policy{Key: key, Name: "the " + key, Wait: 10 * time.Second}
}

// nested takes several locks, one within the other, each a second after the one before, and
// holds the last one for a second.
func nested(ctx context.Context, e *core.Engine, ps ...core.Policy) error {
	return inside(ctx, e, ps, slices.Repeat([]time.Duration{time.Second}, len(ps)), func(ctx context.Context) context.Context { return ctx })
}

// inside takes several locks, one within the other, with a pause after each.
func inside(ctx context.Context, e *core.Engine, ps []core.Policy, pauses []time.Duration, seen func(context.Context) context.Context) error {
	if len(ps) == 0 {
		return nil
	}
	return e.Do(ctx, ps[0], func(ctx context.Context) error {
		time.Sleep(pauses[0])
		return inside(seen(ctx), e, ps[1:], pauses[1:], seen)
	})
}

func TestCallThatClosesACircleIsRefusedAtOnce(t *testing.T) {
	in := func(m core.Mode, limit int, p core.Policy) core.Policy {
		p.Mode, p.Limit = m, limit
		return p
	}
	read := func(key string) core.Policy { return in(core.Shared, 0, takes(key)) }
	slot := func(key string, limit int) core.Policy { return in(core.Semaphore, limit, takes(key)) }
	strict := func(key string) core.Policy { p := takes(key); p.Fairness = core.Strict; return p }
	both := core.Policy{Keys: []string{"b", "c"}, Name: "the b and c", Wait: 10 * time.Second}
	for name, tc := range map[string]struct {
		calls [][]core.Policy // each begins 100 ms after the one before
		names []string        // of the circle, in the error
	}{
		"two":                        {[][]core.Policy{{takes("a"), takes("b")}, {takes("b"), takes("a")}}, []string{`"the a", "the b"`}},
		"three":                      {[][]core.Policy{{takes("a"), takes("b")}, {takes("b"), takes("c")}, {takes("c"), takes("a")}}, []string{`"the a", "the b", "the c"`}},
		"strict":                     {[][]core.Policy{{strict("a"), strict("b")}, {strict("b"), strict("a")}}, nil},
		"a reader and a writer":      {[][]core.Policy{{read("a"), takes("b")}, {takes("b"), takes("a")}}, nil},
		"a writer and a reader":      {[][]core.Policy{{takes("a"), read("b")}, {takes("b"), read("a")}}, nil},
		"several at once":            {[][]core.Policy{{both, takes("a")}, {takes("a"), takes("c")}}, nil},
		"while taking several":       {[][]core.Policy{{takes("c"), takes("b")}, {both}}, nil},
		"one slot":                   {[][]core.Policy{{slot("a", 1), takes("b")}, {takes("b"), slot("a", 1)}}, nil},
		"both slots":                 {[][]core.Policy{{slot("a", 2), takes("b")}, {slot("a", 2), takes("b")}, {takes("b"), slot("a", 2)}}, nil},
		"behind another one":         {[][]core.Policy{{takes("a"), takes("b")}, {takes("b"), takes("c")}, {takes("d"), takes("c")}, {takes("c"), takes("a")}}, nil},
		"another one waits in front": {[][]core.Policy{{takes("a"), takes("b")}, {takes("b"), takes("a")}, {takes("b")}, {takes("a")}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open(t, memlock.New())
				begun := time.Now()
				var calls sync.WaitGroup
				var mu sync.Mutex
				var refused []error
				for _, ps := range tc.calls {
					calls.Go(func() {
						err := nested(t.Context(), e, ps...)
						if err == nil {
							return
						}
						mu.Lock()
						defer mu.Unlock()
						if refused = append(refused, err); time.Since(begun) > 3*time.Second {
							t.Errorf("refused after %v", time.Since(begun))
						}
					})
					time.Sleep(100 * time.Millisecond)
				}
				calls.Wait()
				if len(refused) != 1 || !errors.Is(refused[0], core.ErrDeadlock) {
					t.Fatalf("the calls returned %v; want one ErrDeadlock", refused)
				}
				for _, want := range tc.names {
					if !strings.Contains(refused[0].Error(), want) {
						t.Errorf("said %v, want %s", refused[0], want)
					}
				}
			})
		})
	}
}

func TestCallsThatCanGoOnAreNotRefused(t *testing.T) {
	limited := func(key string, hold time.Duration) core.Policy {
		p := takes(key)
		p.MaxHold = hold
		return p
	}
	ends := takes("b")
	ends.NoRenew, ends.TTL = true, 2*time.Second
	slot := takes("s")
	slot.Mode, slot.Limit = core.Semaphore, 2
	read := takes("r")
	read.Mode = core.Shared
	for name, calls := range map[string][][]core.Policy{
		"in one order":            {{takes("a"), takes("b")}, {takes("a"), takes("b")}, {takes("b"), takes("c")}},
		"a slot is free later":    {{slot, takes("b")}, {slot}, {takes("b"), slot}},
		"readers":                 {{read, takes("b")}, {takes("b"), read}},
		"a hold that is bounded":  {{takes("a"), limited("b", time.Second)}, {limited("b", 2*time.Second), takes("a")}},
		"a lease that ends":       {{takes("a"), ends}, {ends, takes("a")}},
		"the holder does not ask": {{takes("a"), takes("b")}, {takes("b")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := open(t, memlock.New())
				var all sync.WaitGroup
				for _, ps := range calls {
					all.Go(func() {
						if err := nested(t.Context(), e, ps...); errors.Is(err, core.ErrDeadlock) {
							t.Errorf("%v", err)
						}
					})
					time.Sleep(100 * time.Millisecond)
				}
				all.Wait()
			})
		})
	}
}

func TestDetachedCallClosesNoCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		var all sync.WaitGroup
		all.Go(func() {
			mustBe(t, e.Do(t.Context(), takes("b"), func(ctx context.Context) error {
				time.Sleep(time.Second)
				return nested(ctx, e, takes("a"))
			}), nil)
		})
		mustBe(t, e.Do(t.Context(), takes("a"), func(ctx context.Context) error {
			all.Go(func() { mustBe(t, nested(core.Detach(ctx), e, takes("b")), nil) })
			time.Sleep(2 * time.Second)
			return nil
		}), nil)
		all.Wait()
	})
}

// TestCirclesAreFoundAndOnlyThose has calls take random locks in random order, twice: at first
// with contexts that do not show what a call holds, so that a circle ends with a wait that runs
// out. Then somebody is refused if there was one, nobody if there was none, and no wait runs
// out.
func TestCirclesAreFoundAndOnlyThose(t *testing.T) {
	first, schedules := counts.Seeds(t, "circles", 0, counts.Short(100, 300), 10_000)
	circular := 0
	for seed := first; seed < first+schedules; seed++ {
		var hidden, shown ended
		synctest.Test(t, func(t *testing.T) { hidden = circles(t, seed, core.Detach) })
		synctest.Test(t, func(t *testing.T) { shown = circles(t, seed, func(ctx context.Context) context.Context { return ctx }) })
		if hidden.late > 0 {
			circular++
		}
		if hidden.refused > 0 || shown.late > 0 || (shown.refused > 0) != (hidden.late > 0) {
			t.Fatalf("seed %d: %d calls waited in vain where nobody could know, then %d were refused and %d waited in vain", seed, hidden.late, shown.refused, shown.late)
		}
	}
	t.Logf("%d of %d schedules had circles", circular, schedules)
}

// ended is how many calls could not go on.
type ended struct{ refused, late int }

func circles(t *testing.T, seed uint64, seen func(context.Context) context.Context) (out ended) {
	rng := rand.New(rand.NewPCG(seed, 1))
	e := open(t, memlock.New())
	var all sync.WaitGroup
	var mu sync.Mutex
	for range 2 + rng.IntN(6) {
		var ps []core.Policy
		for _, k := range rng.Perm(4)[:1+rng.IntN(3)] {
			p := takes(fmt.Sprint("k", k))
			p.Wait = time.Hour
			switch rng.IntN(4) {
			case 0:
				p.Mode = core.Shared
			case 1:
				p.Mode, p.Limit = core.Semaphore, 2
			}
			ps = append(ps, p)
		}
		pause := func() time.Duration { return time.Duration(rng.Int64N(int64(3 * time.Second))) } // none equals another
		pauses := []time.Duration{pause(), pause(), pause(), pause()}
		all.Go(func() {
			time.Sleep(pauses[0])
			err := inside(t.Context(), e, ps, pauses[1:], seen)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
			case errors.Is(err, core.ErrDeadlock):
				out.refused++
			case errors.Is(err, core.ErrTimeout):
				out.late++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	return out
}
