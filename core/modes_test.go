package core_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
)

// use is how callers of a test take a key.
type use struct {
	core.Policy
	room int32 // how many may hold together; 0 is any number
}

func (u use) String() string { return fmt.Sprint(u.Mode, u.Limit, u.Fairness) }

var (
	write   = use{core.Policy{Key: "k", Wait: core.Forever}, 1}
	read    = use{core.Policy{Key: "k", Wait: core.Forever, Mode: core.Shared}, 0}
	permit2 = use{core.Policy{Key: "k", Wait: core.Forever, Mode: core.Semaphore, Limit: 2}, 2}
	permit3 = use{core.Policy{Key: "k", Wait: core.Forever, Mode: core.Semaphore, Limit: 3}, 3}
)

func (u use) strictly() use { u.Fairness = core.Strict; return u }

// crowd counts who is inside and fails the test if they are too many for one of
// them. The readers of one process count as one.
type crowd struct {
	mu     sync.Mutex
	inside map[visit]int
	most   int
}

// visit is a use by a caller; by its process if that shares it among its callers.
type visit struct {
	by   int
	use  string
	room int32
}

func (c *crowd) enter(t *testing.T, caller, process int, u use) (leave func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := visit{caller, u.String(), u.room}
	if u.Mode == core.Shared {
		v.by = -1 - process
	}
	if c.inside == nil {
		c.inside = map[visit]int{}
	}
	c.inside[v]++
	n := len(c.inside)
	c.most = max(c.most, n)
	for other := range c.inside {
		if other.room != 0 && n > int(other.room) {
			t.Errorf("%v are inside together", c.inside)
		}
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.inside[v]--; c.inside[v] == 0 {
			delete(c.inside, v)
		}
	}
}

func TestModesExcludeWhomTheySay(t *testing.T) {
	for name, uses := range map[string][]use{
		"readers and writers":        {write, read, read, read},
		"a semaphore":                {permit3},
		"a semaphore and writers":    {permit3, permit3, write},
		"a semaphore and readers":    {permit3, read},
		"all":                        {write, read, permit2},
		"strict readers and writers": {write.strictly(), read.strictly(), read.strictly()},
		"a strict semaphore":         {permit2.strictly()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				engines := []*core.Engine{open(t, d), open(t, d), open(t, d)}
				var c crowd
				var all sync.WaitGroup
				for i := range 24 {
					u := uses[i%len(uses)]
					all.Go(func() {
						r := rand.New(rand.NewPCG(uint64(i), 1))
						for range 50 {
							err := engines[i%3].Do(t.Context(), u.Policy, func(context.Context) error {
								defer c.enter(t, i, i%3, u)()
								time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
								return nil
							})
							mustBe(t, err, nil)
							time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
						}
					})
				}
				all.Wait()
				shared := 1
				for _, u := range uses {
					if u.room != 1 {
						shared = 2
					}
				}
				if c.most < shared {
					t.Errorf("at most %d were inside together", c.most)
				}
			})
		})
	}
}

func TestTryFailsOnlyIfThereIsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		try := func(e *core.Engine, u use, want error) *core.Lease {
			t.Helper()
			u.Wait = 0
			l, err := e.Acquire(t.Context(), u.Policy)
			mustBe(t, err, want)
			return l
		}
		a, b := try(e, permit3, nil), try(other, permit3, nil)
		try(e, write, core.ErrBusy)
		c := try(e, permit3, nil)
		try(e, permit3, core.ErrBusy)
		try(other, permit3, core.ErrBusy)
		try(other, read, core.ErrBusy)
		mustBe(t, b.Release(t.Context()), nil)
		r := try(other, read, nil)
		try(e, permit3, core.ErrBusy)
		for _, l := range []*core.Lease{a, c, r} {
			mustBe(t, l.Release(t.Context()), nil)
		}
		mustBe(t, try(other, write, nil).Release(t.Context()), nil)
	})
}

func TestUpgradeIsRefusedAndNestingIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, memlock.New())
		nested := func(u use) use { u.Reentrant = true; return u }
		for _, tc := range []struct {
			outer, inner use
			want         error
		}{
			{read, write, core.ErrDeadlock},
			{read, nested(write), core.ErrDeadlock},
			{read, permit2, core.ErrDeadlock},
			{permit2, nested(write), core.ErrDeadlock},
			{permit2, nested(read), core.ErrDeadlock},
			{read, read, core.ErrDeadlock},
			{read, nested(read), nil},
			{permit2, nested(permit2), nil},
			{write, nested(read), nil},
			{write, nested(permit2), nil},
			{write, read, core.ErrDeadlock},
		} {
			err := e.Do(t.Context(), tc.outer.Policy, func(ctx context.Context) error {
				return e.Do(ctx, tc.inner.Policy, func(context.Context) error { return nil })
			})
			if !errors.Is(err, tc.want) {
				t.Errorf("%v inside %v: %v, want %v", tc.inner, tc.outer, err, tc.want)
			}
		}
	})
}

func TestDowngradeLetsReadersInAndNoWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		lease := mustAcquire(t, e, write.Policy)
		token := lease.Token()
		var readers, writers atomic.Int32
		var all sync.WaitGroup
		for _, e := range []*core.Engine{e, other} {
			all.Go(func() {
				mustBe(t, e.Do(t.Context(), read.Policy, func(context.Context) error {
					readers.Add(1)
					time.Sleep(time.Second)
					return nil
				}), nil)
			})
		}
		time.Sleep(time.Millisecond)
		all.Go(func() {
			mustBe(t, other.Do(t.Context(), write.Policy, func(context.Context) error {
				writers.Add(1)
				return nil
			}), nil)
		})
		time.Sleep(time.Millisecond)
		if readers.Load() != 0 {
			t.Error("a reader came in beside a writer")
		}
		mustBe(t, lease.Downgrade(t.Context()), nil)
		synctest.Wait()
		if readers.Load() != 2 || writers.Load() != 0 {
			t.Errorf("%d readers and %d writers are in", readers.Load(), writers.Load())
		}
		mustBe(t, lease.Downgrade(t.Context()), nil)
		mustBe(t, lease.Check(t.Context()), nil)
		if lease.Token() != token {
			t.Error("the token has changed")
		}
		_, err := e.Acquire(lease.Context(t.Context()), core.Policy{Key: "k", Reentrant: true})
		mustBe(t, err, core.ErrDeadlock) // it is a reader now
		time.Sleep(2 * time.Second)
		if writers.Load() != 0 {
			t.Error("a writer came in beside the one that was one")
		}
		mustBe(t, lease.Release(t.Context()), nil)
		all.Wait()
		mustBe(t, lease.Downgrade(t.Context()), core.ErrNotHeld)
	})
}

func TestLoweredLeaseIsNotHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		lease := mustAcquire(t, e, write.Policy)
		var all sync.WaitGroup
		var c crowd
		all.Go(func() {
			mustBe(t, e.Do(t.Context(), write.Policy, func(context.Context) error {
				defer c.enter(t, 0, 0, write)()
				time.Sleep(time.Second)
				return nil
			}), nil)
		})
		synctest.Wait()
		mustBe(t, lease.Downgrade(t.Context()), nil)
		reader := mustAcquire(t, other, read.Policy)
		leave := c.enter(t, 1, 1, read)
		mustBe(t, lease.Release(t.Context()), nil)
		time.Sleep(time.Second)
		leave()
		mustBe(t, reader.Release(t.Context()), nil)
		all.Wait()
	})
}

func TestDifferentLimitsAndFairnessOfOneKeyAreRefusedInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := memlock.New()
		e, other := open(t, d), open(t, d)
		a := mustAcquire(t, e, permit3.Policy)
		for _, u := range []use{permit2, permit3.strictly(), write.strictly()} {
			_, err := e.Acquire(t.Context(), u.Policy)
			mustBe(t, err, core.ErrPolicy)
		}
		// In another one, of a deployment that is on its way, the smaller rules.
		b := mustAcquire(t, other, permit2.Policy)
		third := permit3.Policy
		third.Wait = 0
		_, err := e.Acquire(t.Context(), third)
		mustBe(t, err, core.ErrBusy)
		mustBe(t, b.Release(t.Context()), nil)
		c, err := e.Acquire(t.Context(), third)
		mustBe(t, err, nil)
		mustBe(t, a.Release(t.Context()), nil)
		mustBe(t, c.Release(t.Context()), nil)
		mustBe(t, mustAcquire(t, e, permit2.Policy).Release(t.Context()), nil)
	})
}

func TestStrictServesCallersOfAllProcessesInOrder(t *testing.T) {
	for _, u := range []use{write.strictly(), permit2.strictly()} {
		t.Run(u.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := memlock.New()
				engines := []*core.Engine{open(t, d), open(t, d), open(t, d)}
				first := mustAcquire(t, engines[0], write.strictly().Policy)
				var mu sync.Mutex
				var order []int
				var all sync.WaitGroup
				for i := range 30 {
					// Two in a row of one process: no hand-off past the others.
					all.Go(func() {
						mustBe(t, engines[i/2%3].Do(t.Context(), u.Policy, func(context.Context) error {
							mu.Lock()
							order = append(order, i)
							mu.Unlock()
							time.Sleep(time.Millisecond)
							return nil
						}), nil)
					})
					synctest.Wait()
				}
				mustBe(t, first.Release(t.Context()), nil)
				all.Wait()
				for i, got := range order {
					if d := got - i; d < -1 || d > 1 || u.room == 1 && d != 0 {
						t.Fatalf("served in the order %v", order)
					}
				}
			})
		})
	}
}
