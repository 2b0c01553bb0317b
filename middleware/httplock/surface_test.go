package httplock

import (
	"net/http"
	"slices"
	"testing"

	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestRoutes(t *testing.T) { routetest.Test(t, routetest.Surface{Mount: mount, Rest: "b/c"}) }

// mount puts routes on an http.ServeMux.
func mount(t testing.TB, routes ...routetest.Route) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	for _, route := range routes {
		var h http.Handler = route.Handler
		for _, w := range slices.Backward(route.Around) {
			o := optionsOf(w)
			if w.Guard != nil {
				h = Fence(w.Guard, w.Policy.Key, o...)(h)
			} else {
				h = Lock(w.Engine, w.Policy, o...)(h)
			}
		}
		mux.Handle(route.Pattern, h)
	}
	return mux
}

// optionsOf returns the options that w has.
func optionsOf(w routetest.Wrap) (o []Option) {
	if w.BodyLimit > 0 {
		o = append(o, WithBodyLimit(w.BodyLimit))
	}
	if w.Filter != nil {
		o = append(o, WithFilter(w.Filter))
	}
	if w.OnError != nil {
		o = append(o, WithErrorHandler(w.OnError))
	}
	for name, value := range w.Values {
		o = append(o, WithValue(name, value))
	}
	return o
}
