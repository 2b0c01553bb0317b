package suites

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
	"github.com/lockaround/lockaround/core/drivertest/counts"
)

// door is a key, and what its holders write down there. Nothing but the key itself guards
// what is not atomic.
type door struct {
	name   string
	inside atomic.Int32

	token  int64
	by     int // the engine of the latest holder
	grants int // that the store had part in
	passed int // from one engine to another
}

// Crowd has many callers of several processes want few keys at once, and sees whether two are
// ever let in together. They take few turns in all, or a million if full counts are asked
// for, or as many turns as LOCKAROUND_COUNTS says. Each engine has a driver
// of its own, as another process would. Strict has all of them served by the store, first come, first
// served; without, an engine also hands a key on among its own callers.
func Crowd(t *testing.T, few int, strict bool, join func(testing.TB) driver.Driver) {
	const (
		engines = 4
		callers = 16 // of each engine
		keys    = 4
	)
	turns := counts.Of(t, "turns", few, 1_000_000)
	policy := core.Policy{Wait: core.Forever, TTL: 30 * time.Second}
	if strict {
		policy.Fairness = core.Strict
	}
	doors := make([]door, keys)
	for i := range doors {
		doors[i].name, doors[i].by = fmt.Sprint("door ", i), -1
	}
	var (
		left          atomic.Int64
		overlaps, old atomic.Int64
		running       sync.WaitGroup
	)
	left.Store(int64(turns))
	for e := range engines {
		locks, err := core.New(join(t), core.WithNamespace("test"), core.WithStoreTimeout(20*time.Second), core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := locks.Close(); err != nil {
				t.Errorf("close an engine: %v", err)
			}
		}()
		for c := range callers {
			running.Go(func() {
				for n := c; left.Add(-1) >= 0 && !t.Failed(); n++ {
					d := &doors[n%keys]
					p := policy
					p.Key = d.name
					err := locks.Do(t.Context(), p, func(ctx context.Context) error {
						if d.inside.Add(1) != 1 {
							overlaps.Add(1)
						}
						if lease, ok := core.LeaseFrom(ctx); ok && d.enter(lease.Token(), e) {
							old.Add(1)
						}
						d.inside.Add(-1)
						return nil
					})
					if err != nil {
						t.Errorf("%s: %v", d.name, err)
					}
				}
			})
		}
	}
	running.Wait()
	grants, passed := 0, 0
	for i := range doors {
		grants += doors[i].grants
		passed += doors[i].passed
	}
	if n := overlaps.Load(); n > 0 {
		t.Errorf("%d times somebody was let in while another one was inside", n)
	}
	if n := old.Load(); n > 0 {
		t.Errorf("%d tokens were not larger than the one before", n)
	}
	if passed < turns/10_000 {
		t.Errorf("only %d of %d turns passed from one engine to another, so that little was tested", passed, turns)
	}
	how := "and handed on among the callers of an engine otherwise"
	if strict {
		how = "Fairness Strict"
	}
	t.Attr("figure-3", fmt.Sprintf("%d acquisitions of %d keys by %d callers of %d engines, %d granted by the store (%d of them to another engine than before), %s: %d overlaps, %d tokens out of order",
		turns, keys, engines*callers, engines, grants, passed, how, overlaps.Load(), old.Load()))
}

// enter writes down who has come in, and reports whether its token is no larger than the
// one before.
func (d *door) enter(token int64, by int) (old bool) {
	if token/handOffs != d.token/handOffs {
		d.grants++
	}
	if d.by != by && d.by >= 0 {
		d.passed++
	}
	old = token <= d.token
	d.token, d.by = token, by
	return old
}
