package httplock

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
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
		"exclusive":    {core.Policy{Key: "stock:{path.sku}"}, 1},
		"shared":       {core.Policy{Key: "stock:{path.sku}", Mode: core.Shared}, 6},
		"semaphore":    {core.Policy{Key: "stock:{path.sku}", Mode: core.Semaphore, Limit: 2}, 2},
		"strict":       {core.Policy{Key: "stock:{path.sku}", Fairness: core.Strict}, 1},
		"several keys": {core.Policy{Keys: []string{"shop:{query.shop}", "stock:{path.sku}"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in presence
				tc.Wait = core.Forever
				e, _ := routetest.Open(t)
				mux := http.NewServeMux()
				mux.Handle("POST /products/{sku}", Lock(e, tc.Policy)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { in.visit() })))
				var all sync.WaitGroup
				for range 6 {
					all.Go(func() {
						w := httptest.NewRecorder()
						mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/7?shop=a", nil))
						if w.Code != http.StatusOK {
							t.Errorf("%d: %s", w.Code, w.Body)
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
