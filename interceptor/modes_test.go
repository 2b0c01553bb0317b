package interceptor_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/interceptor"
	"github.com/lockaround/lockaround/interceptor/internal/testpb"
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
		"exclusive":    {core.Policy{Key: "stock:{sku}"}, 1},
		"shared":       {core.Policy{Key: "stock:{sku}", Mode: core.Shared}, 6},
		"semaphore":    {core.Policy{Key: "stock:{sku}", Mode: core.Semaphore, Limit: 2}, 2},
		"strict":       {core.Policy{Key: "stock:{sku}", Fairness: core.Strict}, 1},
		"several keys": {core.Policy{Keys: []string{"order:{order.id}", "stock:{sku}"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in presence
				tc.Wait = core.Forever
				locks, err := core.New(memlock.New(), core.WithNamespace("test"))
				if err != nil {
					t.Fatal(err)
				}
				defer locks.Close()
				around := interceptor.Lock(locks, interceptor.Rules{buy: tc.Policy}).UnaryServer()
				var all sync.WaitGroup
				for range 6 {
					all.Go(func() {
						request := &testpb.Request{Sku: "a", Order: &testpb.Order{Id: "7"}}
						_, err := around(t.Context(), request, &grpc.UnaryServerInfo{FullMethod: buy}, func(context.Context, any) (any, error) {
							in.visit()
							return &testpb.Reply{}, nil
						})
						if err != nil {
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
