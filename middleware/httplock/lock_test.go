package httplock

import (
	"context"
	"net/http"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestHandlerSeesLeaseAndOuterValues(t *testing.T) {
	e, _ := routetest.Open(t)
	type value struct{}
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l, ok := core.LeaseFrom(r.Context())
		if !ok || l.Key() != "k" || r.Context().Value(value{}) != "v" || r.PathValue("x") != "a" || r.Pattern != "/{x}" {
			t.Errorf("lease %v, value %v, x %q, pattern %q", ok, r.Context().Value(value{}), r.PathValue("x"), r.Pattern)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("/{x}", Lock(e, core.Policy{Key: "k"})(inner))
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), value{}, "v"))
		mux.ServeHTTP(w, r)
		if _, ok := core.LeaseFrom(r.Context()); ok || r.Context().Err() != nil {
			t.Error("the outer request's context has changed")
		}
	}))
	routetest.Get(t, s, "/a").MustBe(t, 200, "")
}
