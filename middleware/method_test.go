package middleware_test

import (
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

func TestHeadAndOptionsRunUnderTheLockOfTheirRoute(t *testing.T) {
	s := newSite(t)
	lock := middleware.Lock(s.locks, core.Policy{Key: "stock:{path.sku}"})
	tell := func(c *gin.Context) {
		s.mustBeTaken(t, "stock:book", "while the handler runs")
		c.Header("Content-Length", "4")
		c.String(http.StatusOK, "book")
	}
	r := newRouter()
	r.HEAD("/products/:sku", lock, tell)
	r.OPTIONS("/products/:sku", lock, tell)
	// As CORS middleware answers: a preflight is no call.
	preflight := func(c *gin.Context) {
		if c.Request.Method == http.MethodOptions {
			c.AbortWithStatus(http.StatusNoContent)
		}
	}
	r.OPTIONS("/cors/:sku", preflight, lock, func(*gin.Context) { t.Error("the handler runs") })
	srv := serve(t, http1, r)
	for _, tc := range []struct{ method, body string }{{http.MethodHead, ""}, {http.MethodOptions, "book"}} {
		a := send(srv, newRequest(t, srv, tc.method, "/products/book", nil))
		if a.err != nil || a.status != http.StatusOK || a.body != tc.body || a.header.Get("Content-Length") != "4" {
			t.Errorf("%s: got %+v; want %q", tc.method, a, tc.body)
		}
		s.mustBeFree(t, "stock:book", "after "+tc.method)
	}

	release := s.occupy(t, "stock:book")
	defer release()
	for _, tc := range []struct {
		method, path string
		status       int
	}{
		{http.MethodHead, "/products/book", http.StatusConflict},
		{http.MethodOptions, "/products/book", http.StatusConflict},
		{http.MethodOptions, "/cors/book", http.StatusNoContent},
	} {
		if a := send(srv, newRequest(t, srv, tc.method, tc.path, nil)); a.err != nil || a.status != tc.status {
			t.Errorf("%s %s of a taken key: got %+v; want %d", tc.method, tc.path, a, tc.status)
		}
	}
}
