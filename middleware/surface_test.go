package middleware

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// gin finds the tokens in its own context whether or not that falls back to the request's.
func TestRoutes(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(fmt.Sprintf("fallback %v", fallback), func(t *testing.T) {
			routetest.Test(t, routetest.Surface{Rest: "/b/c", Mount: func(t testing.TB, routes ...routetest.Route) http.Handler {
				r := newRouter()
				r.ContextWithFallback = fallback
				if err := r.SetTrustedProxies(nil); err != nil {
					t.Fatal(err)
				}
				for _, route := range routes {
					mount(t, r, route)
				}
				return r
			}})
		})
	}
}

// mount puts a route on r.
func mount(t testing.TB, r *gin.Engine, route routetest.Route) {
	t.Helper()
	var handlers []gin.HandlerFunc
	for _, w := range route.Around {
		o := optionsOf(w)
		if w.Guard != nil {
			handlers = append(handlers, Fence(w.Guard, w.Policy.Key, o...))
		} else {
			handlers = append(handlers, Lock(w.Engine, w.Policy, o...))
		}
	}
	handlers = append(handlers, func(c *gin.Context) {
		if direct, token := fence.All(c), fence.All(c.Request.Context()); !slices.Equal(direct, token) {
			t.Errorf("gin's context has the tokens %v, the request's %v", direct, token)
		}
		for _, p := range c.Params {
			c.Request.SetPathValue(p.Key, p.Value)
		}
		route.Handler(c.Writer, c.Request)
	})
	method, path, found := strings.Cut(route.Pattern, " ")
	if !found {
		method, path = "", route.Pattern
	}
	path = strings.NewReplacer("{rest...}", "*rest", "{", ":", "}", "").Replace(path)
	if method == "" {
		r.Any(path, handlers...)
	} else {
		r.Handle(method, path, handlers...)
	}
}

// optionsOf returns the options that w has.
func optionsOf(w routetest.Wrap) (o []Option) {
	if w.BodyLimit > 0 {
		o = append(o, WithBodyLimit(w.BodyLimit))
	}
	if filter := w.Filter; filter != nil {
		o = append(o, WithFilter(func(c *gin.Context) bool { return filter(c.Request) }))
	}
	if answer := w.OnError; answer != nil {
		o = append(o, WithErrorHandler(func(c *gin.Context, err error) { answer(c.Writer, c.Request, err) }))
	}
	for name, value := range w.Values {
		o = append(o, WithValue(name, func(c *gin.Context) (string, error) { return value(c.Request) }))
	}
	return o
}
