package decorator_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/decorator"
	"github.com/lockaround/lockaround/decorator/internal/roomtest"
)

// presence counts who is inside.
type presence struct {
	mu           sync.Mutex
	inside, most int
}

func (p *presence) visit() {
	p.mu.Lock()
	p.inside++
	p.most = max(p.most, p.inside)
	p.mu.Unlock()
	time.Sleep(time.Second)
	p.mu.Lock()
	p.inside--
	p.mu.Unlock()
}

func TestPolicyOfAnyModeGoesAroundACall(t *testing.T) {
	for name, tc := range map[string]struct {
		core.Policy
		together int
	}{
		"exclusive":    {core.Policy{Key: "stock:{SKU}"}, 1},
		"shared":       {core.Policy{Key: "stock:{SKU}", Mode: core.Shared}, 6},
		"semaphore":    {core.Policy{Key: "stock:{SKU}", Mode: core.Semaphore, Limit: 2}, 2},
		"strict":       {core.Policy{Key: "stock:{SKU}", Fairness: core.Strict}, 1},
		"several keys": {core.Policy{Keys: []string{"count:{Count}", "stock:{SKU}"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in presence
				tc.Wait = core.Forever
				deduct := decorator.WithLockErr(roomtest.Engine(t, memlock.New()), tc.Policy, func(context.Context, deduction) error {
					in.visit()
					return nil
				})
				var all sync.WaitGroup
				for range 6 {
					all.Go(func() {
						if err := deduct(t.Context(), deduction{"A-1", 7}); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if in.most != tc.together {
					t.Errorf("at most %d were inside together, want %d", in.most, tc.together)
				}
			})
		})
	}
}
