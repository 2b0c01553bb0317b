package middleware

import (
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// gin finds the tokens in its own context whether or not that falls back to the request's.
func TestRoutes(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(fmt.Sprintf("fallback %v", fallback), func(t *testing.T) {
			routetest.Test(t, routetest.Surface{Rest: "/b/c", ErrBody: ErrBody, Answered: answered, Mount: func(t testing.TB, routes ...routetest.Route) http.Handler {
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

func answered(w http.ResponseWriter) bool { return w.(gin.ResponseWriter).Written() }

// mount puts a route on r.
func mount(t testing.TB, r *gin.Engine, route routetest.Route) {
	t.Helper()
	var handlers []gin.HandlerFunc
	unbuffered := false
	for _, w := range route.Around {
		unbuffered = unbuffered || w.Unbuffered
		o := optionsOf(t, w)
		switch {
		case w.Tokens:
			handlers = append(handlers, seesNoTokens(t), ReadTokens)
		case w.Gzip:
			handlers = append(handlers, compressing)
		case w.Store != nil:
			handlers = append(handlers, Idempotent(w.Engine, w.Policy, w.Store, w.Once, o...))
		case w.Guard != nil:
			handlers = append(handlers, Fence(w.Guard, w.Policy.Key, o...))
		default:
			handlers = append(handlers, Lock(w.Engine, w.Policy, o...))
		}
	}
	handlers = append(handlers, func(c *gin.Context) {
		if _, copied := c.Get(gin.BodyBytesKey); copied && unbuffered {
			t.Error("the body was read before the handler")
		}
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

// seesNoTokens comes before ReadTokens, and must not see what it does.
func seesNoTokens(t testing.TB) gin.HandlerFunc {
	return func(c *gin.Context) {
		before := c.Request
		c.Next()
		if c.Request != before || len(fence.All(c)) > 0 {
			t.Error("the handlers before it see the tokens")
		}
	}
}

// optionsOf returns the options that w has.
func optionsOf(t testing.TB, w routetest.Wrap) (o []Option) {
	t.Helper()
	if w.Unbuffered {
		o = append(o, WithoutBodyBuffer())
	}
	if w.BodyLimit > 0 {
		o = append(o, WithBodyLimit(w.BodyLimit))
	}
	if filter := w.Filter; filter != nil {
		o = append(o, WithFilter(func(c *gin.Context) bool { return filter(c.Request) }))
	}
	if answer := w.OnError; answer != nil {
		o = append(o, WithErrorHandler(func(c *gin.Context, err error) {
			if !c.IsAborted() && !errors.Is(err, core.ErrMaxHold) && !errors.Is(err, core.ErrLost) {
				t.Error("the chain goes on")
			}
			answer(c.Writer, c.Request, err)
		}))
	}
	if w.Replayed != nil {
		o = append(o, WithReplayedHeaders(w.Replayed...))
	}
	if w.Kept != nil {
		o = append(o, WithKept(w.Kept))
	}
	for name, value := range w.Values {
		o = append(o, WithValue(name, func(c *gin.Context) (string, error) { return value(c.Request) }))
	}
	return o
}

// compressing is a middleware that compresses what comes behind it, and leaves its writer
// where it is, as they do.
func compressing(c *gin.Context) {
	c.Header("Content-Encoding", "gzip")
	z := gzip.NewWriter(c.Writer)
	w := &compressed{ResponseWriter: c.Writer, z: z}
	c.Writer = w
	c.Next()
	if w.written {
		_ = z.Close()
	}
}

type compressed struct {
	gin.ResponseWriter
	z       *gzip.Writer
	written bool
}

func (w *compressed) Write(p []byte) (int, error) {
	w.written = true
	return w.z.Write(p)
}
