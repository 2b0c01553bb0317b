package middleware

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestEmptyPathValueIsNoKey(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/products/:sku/*rest", Lock(e, core.Policy{Key: "stock:{path.sku}"}), tellKey)
	s := routetest.Serve(t, r)
	a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/products//r", ""))
	a.MustBe(t, 400, "LOCK_KEY_INVALID")
	if a.Problem.Placeholder != "path.sku" {
		t.Errorf("the problem is with %q", a.Problem.Placeholder)
	}
}

func TestRouteThatDoesNotFitItsKeyNeverRuns(t *testing.T) {
	e, _ := routetest.Open(t)
	never := func(*gin.Context) { t.Error("the handler runs") }
	logged := logtest.Capture(t)
	r := newRouter()
	h := Lock(e, core.Policy{Key: "stock:{path.sku}"})
	r.GET("/fits/:sku", h, tellKey)
	r.GET("/other/:id", h, never)
	r.GET("/twice/:sku/of/:sku", h, never)
	r.NoRoute(h, never)
	s := routetest.Serve(t, r)
	for range 2 {
		for path, status := range map[string]int{"/fits/a": 200, "/other/a": 500, "/twice/a/of/b": 500, "/none": 404} {
			a := routetest.Get(t, s, path)
			if a.Status != status || status == 500 && a.Problem.Code != "LOCK_POLICY" {
				t.Errorf("%s: got %d %s; want %d", path, a.Status, a.Body, status)
			}
		}
	}
	for _, route := range []string{"route=/other/:id", "route=/twice/:sku/of/:sku"} {
		lines := 0
		for line := range strings.Lines(logged.String()) {
			if strings.Contains(line, "does not fit") && strings.Contains(line, route+" ") {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("%d lines about %s; want 1 in %s", lines, route, logged)
		}
	}
}

// gin runs what is for all routes also where there is none.
func TestLockOfAWholeEngineLeavesWhatIsNotFoundToGin(t *testing.T) {
	e, _ := routetest.Open(t)
	logged := logtest.Capture(t)
	r := newRouter()
	r.HandleMethodNotAllowed = true
	r.Use(Lock(e, core.Policy{Key: "tenant:{path.tenant}"}))
	r.POST("/t/:tenant", tellKey)
	s := routetest.Serve(t, r)
	for path, want := range map[string]int{"/nothing": 404, "/t/1": 405} {
		if a := routetest.Get(t, s, path); a.Status != want {
			t.Errorf("%s: got %d %s; want %d", path, a.Status, a.Body, want)
		}
	}
	if text := logged.String(); text != "" {
		t.Errorf("logged %s", text)
	}
}
