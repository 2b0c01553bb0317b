package httplock

import (
	"compress/gzip"
	"net/http"
	"slices"
	"testing"

	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestRoutes(t *testing.T) {
	routetest.Test(t, routetest.Surface{Mount: mount, Rest: "b/c", ErrBody: ErrBody, Answered: Answered})
}

// mount puts routes on an http.ServeMux.
func mount(t testing.TB, routes ...routetest.Route) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	for _, route := range routes {
		var h http.Handler = route.Handler
		for _, w := range slices.Backward(route.Around) {
			o := optionsOf(w)
			switch {
			case w.Tokens:
				h = ReadTokens(h)
			case w.Gzip:
				h = compressing(h)
			case w.Store != nil:
				h = Idempotent(w.Engine, w.Policy, w.Store, w.Once, o...)(h)
			case w.Guard != nil:
				h = Fence(w.Guard, w.Policy.Key, o...)(h)
			default:
				h = Lock(w.Engine, w.Policy, o...)(h)
			}
		}
		mux.Handle(route.Pattern, h)
	}
	return mux
}

// optionsOf returns the options that w has.
func optionsOf(w routetest.Wrap) (o []Option) {
	if w.Unbuffered {
		o = append(o, WithoutBodyBuffer())
	}
	if w.BodyLimit > 0 {
		o = append(o, WithBodyLimit(w.BodyLimit))
	}
	if w.Filter != nil {
		o = append(o, WithFilter(w.Filter))
	}
	if w.OnError != nil {
		o = append(o, WithErrorHandler(w.OnError))
	}
	if w.Replayed != nil {
		o = append(o, WithReplayedHeaders(w.Replayed...))
	}
	if w.Kept != nil {
		o = append(o, WithKept(w.Kept))
	}
	for name, value := range w.Values {
		o = append(o, WithValue(name, value))
	}
	return o
}

// compressing is a middleware that compresses what is written behind it.
func compressing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		c := &compressed{w, z, false}
		next.ServeHTTP(c, r)
		if c.written {
			_ = z.Close()
		}
	})
}

type compressed struct {
	http.ResponseWriter
	z       *gzip.Writer
	written bool
}

func (w *compressed) Write(p []byte) (int, error) {
	w.written = true
	return w.z.Write(p)
}
