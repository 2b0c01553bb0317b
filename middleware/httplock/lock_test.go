package httplock

import (
	"context"
	"errors"
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

func TestErrorHandlerAnswersInPlaceOfTheLock(t *testing.T) {
	e, d := routetest.Open(t)
	type call struct {
		err      error
		answered bool
	}
	calls := make(chan call, 1)
	mux := http.NewServeMux()
	lock := Lock(e, core.Policy{Key: "k"}, WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) {
		calls <- call{err, Answered(w)}
		if _, ok := core.LeaseFrom(r.Context()); ok {
			t.Error("the request is the handler's")
		}
		if !Answered(w) {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	expire := func(w http.ResponseWriter, r *http.Request) {
		d.Expire("test/k")
		<-r.Context().Done()
	}
	mux.Handle("/silent", lock(http.HandlerFunc(expire)))
	mux.Handle("/answers", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		expire(w, r)
	})))
	s := routetest.Serve(t, mux)
	release := routetest.Hold(t, e, "k")
	routetest.Get(t, s, "/silent").MustBe(t, 418, "")
	if c := <-calls; !errors.Is(c.err, core.ErrBusy) || c.answered {
		t.Errorf("called with %+v; want ErrBusy", c)
	}
	release()
	routetest.Get(t, s, "/silent").MustBe(t, 418, "")
	if c := <-calls; !errors.Is(c.err, core.ErrLost) || c.answered {
		t.Errorf("called with %+v; want ErrLost", c)
	}
	routetest.Get(t, s, "/answers").MustBe(t, 202, "")
	if c := <-calls; !errors.Is(c.err, core.ErrLost) || !c.answered {
		t.Errorf("called with %+v; want ErrLost, answered", c)
	}
}
