package httplock

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// BenchmarkRoute measures what a lock adds to a route, on a free key and without
// a network; "by hand" is the same lock by Engine.Do in the handler.
func BenchmarkRoute(b *testing.B) {
	const doc = `{"items":[{"n":1},{"n":2}],"sku":"a-1"}`
	noContent := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	rules := func(b *testing.B, e *core.Engine, pattern, key string) func(http.Handler) http.Handler {
		t, err := NewTable(e, Rules{pattern: {Key: key}})
		if err != nil {
			b.Fatal(err)
		}
		return t.Handler()
	}
	const route = "POST /products/{sku}/deduct"
	for _, bm := range []struct {
		name, body string
		handler    func(*testing.B, *core.Engine) http.Handler
	}{
		{name: "unlocked", handler: func(*testing.B, *core.Engine) http.Handler { return http.HandlerFunc(noContent) }},
		{name: "by hand", handler: func(b *testing.B, e *core.Engine) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if err := e.Do(r.Context(), core.Policy{Key: "stock:" + core.Escape(r.PathValue("sku"))}, func(ctx context.Context) error {
					noContent(w, r.WithContext(ctx))
					return nil
				}); err != nil {
					b.Error(err)
				}
			})
		}},
		{name: "path", handler: func(_ *testing.B, e *core.Engine) http.Handler {
			return Lock(e, core.Policy{Key: "stock:{path.sku}"})(http.HandlerFunc(noContent))
		}},
		{name: "path by table", handler: func(b *testing.B, e *core.Engine) http.Handler {
			return rules(b, e, route, "stock:{path.sku}")(http.HandlerFunc(noContent))
		}},
		{name: "no rule in the table", handler: func(b *testing.B, e *core.Engine) http.Handler {
			return rules(b, e, "/products/{sku}/refund", "stock:{path.sku}")(http.HandlerFunc(noContent))
		}},
		{name: "unlocked with body", body: doc, handler: func(*testing.B, *core.Engine) http.Handler { return http.HandlerFunc(noContent) }},
		{name: "path with body", body: doc, handler: func(_ *testing.B, e *core.Engine) http.Handler {
			return Lock(e, core.Policy{Key: "stock:{path.sku}"})(http.HandlerFunc(noContent))
		}},
		{name: "value in body", body: doc, handler: func(_ *testing.B, e *core.Engine) http.Handler {
			return Lock(e, core.Policy{Key: "stock:{body.sku}"})(http.HandlerFunc(noContent))
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			e, _ := routetest.Open(b)
			mux := http.NewServeMux()
			mux.Handle(route, bm.handler(b, e))
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(http.MethodPost, "/products/a-1/deduct", strings.NewReader(bm.body))
				req.Header.Set("Content-Type", "application/json")
				mux.ServeHTTP(httptest.NewRecorder(), req)
			}
		})
	}
}
