package httplock

import (
	"net/http"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestFormsOfTheHandlerAreFoundOutside(t *testing.T) {
	e, _ := routetest.Open(t)
	locked := Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = r.FormValue("sku")
		panic(http.ErrAbortHandler)
	}))
	seen := make(chan string, 1)
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			_ = recover()
			seen <- r.PostForm.Get("sku") + r.Form.Get("sku")
		}()
		locked.ServeHTTP(w, r)
	}))
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", "sku=a", "Content-Type", "application/x-www-form-urlencoded"))
	if got := <-seen; got != "aa" {
		t.Errorf("got %q; want the value in both forms", got)
	}
}
