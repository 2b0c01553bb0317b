package middleware_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware"
)

// A panic under a lock has to look to the client as it does without one, whatever
// the release of gin makes of it, and to leave the key free.
func TestPanicLooksAsItDoesWithoutTheLock(t *testing.T) {
	recovery := gin.RecoveryWithWriter(io.Discard)
	for _, tc := range []struct {
		name            string
		before, between []gin.HandlerFunc // the lock, and the lock and the handler
		cut             bool              // the connection breaks
	}{
		{name: "no Recovery", cut: true},
		{name: "Recovery before", before: []gin.HandlerFunc{recovery}},
		{name: "Recovery behind", between: []gin.HandlerFunc{recovery}},
		{name: "Recovery before and behind", before: []gin.HandlerFunc{recovery}, between: []gin.HandlerFunc{recovery}},
	} {
		for name, value := range map[string]any{"panic": "boom", "http.ErrAbortHandler": http.ErrAbortHandler} {
			for _, p := range []protocol{http1, http2} {
				t.Run(tc.name+", "+name+", "+string(p), func(t *testing.T) {
					s := newSite(t)
					r := newRouter()
					r.Use(func(c *gin.Context) {
						defer s.mustBeFree(t, "k", "when the panic or the return has passed the lock")
						c.Next()
					})
					r.Use(tc.before...)
					handlers := func(first ...gin.HandlerFunc) []gin.HandlerFunc {
						return append(append(first, tc.between...), func(*gin.Context) { panic(value) })
					}
					r.GET("/unlocked", handlers()...)
					r.GET("/locked", handlers(middleware.Lock(s.locks, core.Policy{Key: "k"}))...)
					srv := serve(t, p, r)
					want := send(srv, newRequest(t, srv, http.MethodGet, "/unlocked", nil))
					got := send(srv, newRequest(t, srv, http.MethodGet, "/locked", nil))
					if (want.err != nil) != tc.cut {
						t.Fatalf("gin alone gives %+v; want a broken connection: %v", want, tc.cut)
					}
					if got.status != want.status || got.body != want.body || (got.err != nil) != tc.cut {
						t.Errorf("got %+v; without the lock %+v", got, want)
					}
				})
			}
		}
	}
}
