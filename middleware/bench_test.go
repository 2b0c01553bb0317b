package middleware

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// BenchmarkRoute measures what a lock adds to a route, on a free key and without
// a network; "by hand" is the same lock by Engine.Do in the handler.
func BenchmarkRoute(b *testing.B) {
	const doc = `{"items":[{"n":1},{"n":2}],"sku":"a-1"}`
	for _, bm := range []struct {
		name, key, body string
		byHand          bool
	}{
		{name: "unlocked"},
		{name: "by hand", byHand: true},
		{name: "path", key: "stock:{path.sku}"},
		{name: "unlocked with body", body: doc},
		{name: "path with body", key: "stock:{path.sku}", body: doc},
		{name: "value in body", key: "stock:{body.sku}", body: doc},
	} {
		b.Run(bm.name, func(b *testing.B) {
			e, _ := routetest.Open(b)
			r := newRouter()
			handlers := []gin.HandlerFunc{func(c *gin.Context) { c.Status(http.StatusNoContent) }}
			if bm.byHand {
				handlers[0] = func(c *gin.Context) {
					if err := e.Do(c.Request.Context(), core.Policy{Key: "stock:" + core.Escape(c.Param("sku"))}, func(ctx context.Context) error {
						c.Request = c.Request.WithContext(ctx)
						c.Status(http.StatusNoContent)
						return nil
					}); err != nil {
						b.Error(err)
					}
				}
			}
			if bm.key != "" {
				handlers = append([]gin.HandlerFunc{Lock(e, core.Policy{Key: bm.key})}, handlers...)
			}
			r.POST("/products/:sku/deduct", handlers...)
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(http.MethodPost, "/products/a-1/deduct", strings.NewReader(bm.body))
				req.Header.Set("Content-Type", gin.MIMEJSON)
				r.ServeHTTP(httptest.NewRecorder(), req)
			}
		})
	}
}
