package middleware

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestLeaseIsFoundInBothContextsWhileItIsHeld(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(fmt.Sprintf("fallback %v", fallback), func(t *testing.T) {
			logtest.Capture(t)
			e, _ := routetest.Open(t)
			r := newRouter()
			r.ContextWithFallback = fallback
			check := func(where, want string) gin.HandlerFunc {
				look := func(c *gin.Context, when string) {
					for of, lookup := range map[string]func() (*core.Lease, bool){
						"c":                   func() (*core.Lease, bool) { return core.LeaseFrom(c) },
						"c.Request.Context()": func() (*core.Lease, bool) { return core.LeaseFrom(c.Request.Context()) },
					} {
						got := ""
						if l, ok := lookup(); ok {
							got = l.Key()
						}
						if got != want {
							t.Errorf("%s %s: LeaseFrom(%s) is of %q; want %q", when, where, of, got, want)
						}
					}
				}
				return func(c *gin.Context) {
					look(c, "before")
					c.Next()
					look(c, "after")
					if v, _ := c.Get(core.LeaseContextKey); want == "" && v != nil {
						t.Error("c keeps a lease that has ended alive")
					}
				}
			}
			var kept *gin.Context
			r.GET("/", check("all", ""), Lock(e, core.Policy{Key: "a"}), check("b", "a"), Lock(e, core.Policy{Key: "b"}),
				check("handler", "b"), func(c *gin.Context) { kept = c.Copy() })
			s := routetest.Serve(t, r)
			routetest.Get(t, s, "/").MustBe(t, 200, "")
			s.Close()
			if l, ok := core.LeaseFrom(kept); ok {
				t.Errorf("a copy of c has the ended lease of %s", l.Key())
			}
		})
	}
}

func TestContextWithoutFallbackIsWarnedOfOnce(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(fmt.Sprintf("fallback %v", fallback), func(t *testing.T) {
			fallbackWarning = sync.Once{}
			logged := logtest.Capture(t)
			e, _ := routetest.Open(t)
			r := newRouter()
			r.ContextWithFallback = fallback
			r.GET("/a", Lock(e, core.Policy{Key: "a"}), tellKey)
			r.GET("/b", Lock(e, core.Policy{Key: "b"}), tellKey)
			s := routetest.Serve(t, r)
			for _, path := range []string{"/a", "/b", "/a"} {
				routetest.Get(t, s, path)
			}
			want := 1
			if fallback {
				want = 0
			}
			if n := strings.Count(logged.String(), "ContextWithFallback"); n != want {
				t.Errorf("warned %d times, want %d: %s", n, want, logged)
			}
		})
	}
}

func TestOuterMiddlewareKeepsItsRequest(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.Use(func(c *gin.Context) {
		before := c.Request
		c.Next()
		if c.Request != before || c.Request.Context().Err() != nil {
			t.Errorf("request changed: %v, its context's end: %v", c.Request != before, c.Request.Context().Err())
		}
		if got := c.Request.PostForm.Get("sku"); got != "a" {
			t.Errorf("the form that the handler parsed has sku %q; want a", got)
		}
	})
	r.POST("/", Lock(e, core.Policy{Key: "k"}), func(c *gin.Context) { c.PostForm("sku") })
	s := routetest.Serve(t, r)
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", "sku=a", "Content-Type", "application/x-www-form-urlencoded")).MustBe(t, 200, "")
	s.Close()
}
