package middleware

import (
	"net/http"
	"testing"

	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func surface() routetest.Surface {
	return routetest.Surface{Rest: "/b/c", ErrBody: ErrBody, Answered: answered, Mount: func(t testing.TB, routes ...routetest.Route) http.Handler {
		r := newRouter()
		for _, route := range routes {
			mount(t, r, route)
		}
		return r
	}}
}

func TestIdempotentRoutes(t *testing.T) { routetest.TestOnce(t, surface()) }
