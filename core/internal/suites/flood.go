package suites

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/driver"
)

// Flood has callers of several processes come for one key that is held, with a MaxWaiting of 1 of 100 of them.
// All that were let wait must get the key, and all others must be refused while it is still held. Let wait are
// as many of all processes if strict, and otherwise of each. Each engine has a driver of its own, as another
// process would.
func Flood(t *testing.T, callers int, strict bool, join func(testing.TB) driver.Driver) {
	const engines = 4
	most := callers / 100
	policy := core.Policy{Key: "stock:42", Wait: core.Forever, MaxWaiting: most}
	letIn := engines * most
	if strict {
		policy.Fairness, letIn = core.Strict, most
	}
	open := func() *core.Engine {
		locks, err := core.New(join(t), core.WithNamespace("test"), core.WithStoreTimeout(20*time.Second), core.WithLogger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := locks.Close(); err != nil {
				t.Errorf("close an engine: %v", err)
			}
		})
		return locks
	}
	holder := open()
	held, err := holder.Acquire(t.Context(), policy)
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu              sync.Mutex
		served, refused []time.Duration
		inside          int
		all             sync.WaitGroup
		decided         = make(chan struct{}) // all are refused that shall be
	)
	for range engines {
		locks := open()
		for range callers / engines {
			all.Go(func() {
				start := time.Now()
				lease, err := locks.Acquire(t.Context(), policy)
				took := time.Since(start)
				mu.Lock()
				switch {
				case err == nil:
					served = append(served, took)
					inside++
				case errors.Is(err, core.ErrFull):
					if refused = append(refused, took); len(refused) == callers-letIn {
						close(decided)
					}
				default:
					t.Errorf("a caller that may wait for ever: %v", err)
				}
				mu.Unlock()
				if err != nil {
					return
				}
				mu.Lock()
				if inside--; inside != 0 {
					t.Error("two hold the key")
				}
				mu.Unlock()
				if err := lease.Release(context.Background()); err != nil {
					t.Errorf("release: %v", err)
				}
			})
		}
	}
	select {
	case <-decided:
	case <-time.After(time.Minute):
		t.Error("a minute later not all are refused for whom there is no room")
	}
	state, err := holder.Inspect(t.Context(), policy.Key)
	if err != nil {
		t.Error(err)
	}
	if strict && state.Waiting != most || !strict && state.Waiting != engines {
		t.Errorf("the store's queue has %d places", state.Waiting)
	}
	if err := held.Release(t.Context()); err != nil {
		t.Error(err)
	}
	all.Wait()
	if len(served) != letIn || len(served)+len(refused) != callers {
		t.Errorf("%d were served and %d refused, want %d of %d", len(served), len(refused), letIn, callers)
	}
	slices.Sort(served)
	slices.Sort(refused)
	at := func(d []time.Duration, share float64) time.Duration {
		if len(d) == 0 {
			return 0
		}
		return d[int(share*float64(len(d)-1))].Round(time.Microsecond)
	}
	t.Logf("%d refused: median %v, 99%% within %v, all within %v; %d served: median %v, all within %v",
		len(refused), at(refused, .5), at(refused, .99), at(refused, 1), len(served), at(served, .5), at(served, 1))
	if at(refused, .5) > at(served, .5) {
		t.Errorf("the refused are answered after %v in the median, the served after %v", at(refused, .5), at(served, .5))
	}
}
