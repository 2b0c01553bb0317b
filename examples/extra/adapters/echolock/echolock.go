// Package echolock puts package middleware/httplock around echo's routes:
//
//	deduct := httplock.Lock(locks, core.Policy{Key: "stock:{path.sku}", Wait: 2 * time.Second})
//	e.POST("/products/:sku/deduct", handler, echolock.Middleware(deduct))
//
// A table of rules goes around all routes at once, and is checked against them:
//
//	e.Use(echolock.Middleware(table.Handler()))
//	err := table.Validate(echolock.Patterns(e)...)
//
// Rules are written as everywhere, "POST /products/{sku}/deduct". {path.sku} is what c.Param
// returns: echo leaves most of it encoded, so do not decode it once more.
package echolock

import (
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"
)

// Middleware returns lock, from httplock.Lock or the Handler of a table, for echo's routes and
// groups, or for Use, but not for Pre: what comes before the router knows no route. An error
// that a handler returns is answered by echo when the lock is released.
func Middleware(lock func(http.Handler) http.Handler) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (failed error) {
			outer, answer := c.Request(), c.Response()
			outer.Pattern = pattern(outer.Method, c.Path())
			for i, name := range c.ParamNames() {
				outer.SetPathValue(name, c.ParamValues()[i])
			}
			lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				defer c.SetResponse(answer)
				defer c.SetRequest(outer)
				c.SetRequest(r)
				c.SetResponse(echo.NewResponse(w, c.Echo()))
				failed = next(c)
			})).ServeHTTP(answer, outer)
			return failed
		}
	}
}

// Patterns returns the patterns of e's routes, for httplock's Table.Validate.
func Patterns(e *echo.Echo) (all []string) {
	for _, r := range e.Routes() {
		all = append(all, pattern(r.Method, r.Path))
	}
	return all
}

// pattern writes a route of echo as http.Request.Pattern has it. What no route is for is one of
// a catch-all.
func pattern(method, path string) string {
	if path == "" {
		path = "/*"
	}
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if before, name, ok := strings.Cut(s, ":"); ok && !strings.HasSuffix(before, `\`) {
			segments[i] = before + "{" + name + "}"
		}
	}
	return method + " " + strings.Join(segments, "/")
}
