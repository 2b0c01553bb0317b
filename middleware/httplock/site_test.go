package httplock

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestTableThatCannotTellTheRouteRunsNothing(t *testing.T) {
	e, _ := routetest.Open(t)
	logged := logtest.Capture(t)
	errs := 0
	tab := table(t, e, map[string]string{"POST /x": "k"})
	counted := table(t, e, map[string]string{"POST /x": "k"}, WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
		if !errors.Is(err, core.ErrPolicy) {
			t.Errorf("got %v", err)
		}
		errs++
		w.WriteHeader(http.StatusTeapot)
	}))
	inFront := routetest.Serve(t, tab.Handler()(muxOf(func(h http.Handler) http.Handler { return routetest.Never(t) }, "/")))
	for range 2 {
		routetest.Get(t, inFront, "/y").MustBe(t, 500, "LOCK_POLICY")
	}
	routetest.Get(t, routetest.Serve(t, counted.Handler()(routetest.Never(t))), "/y").MustBe(t, 418, "")
	if errs != 1 {
		t.Errorf("the error handler is called %d times", errs)
	}
	if n := strings.Count(logged.String(), "a lock table cannot tell the route"); n != 2 {
		t.Errorf("%d lines; want one for each table: %s", n, logged)
	}
	r := httptest.NewRequest(http.MethodGet, "/y", nil)
	r.Pattern = "no path"
	w := httptest.NewRecorder()
	tab.Handler()(routetest.Never(t)).ServeHTTP(w, r)
	if w.Code != 500 {
		t.Errorf("a pattern that cannot be read: got %d", w.Code)
	}
}

func TestTableInFrontOfAnotherRouterRunsNothingThatHasARule(t *testing.T) {
	e, _ := routetest.Open(t)
	logged := logtest.Capture(t)
	tab := table(t, e, map[string]string{
		"POST /api/orders/{id}": "order:{path.id}",
		"POST /items/{id}":      "item:{path.id}",
	})
	unreached := routetest.Never(t)
	never := func(http.Handler) http.Handler { return unreached }
	for name, s := range map[string]http.Handler{
		"one router in another": muxOf(func(http.Handler) http.Handler {
			return tab.Handler()(muxOf(never, "POST /api/orders/{id}"))
		}, "/api/"),
		"by a wildcard": muxOf(func(http.Handler) http.Handler {
			return tab.Handler()(muxOf(never, "POST /api/orders/{id}"))
		}, "/{all...}"),
		"a route that is missing": muxOf(func(http.Handler) http.Handler { return tab.Handler()(unreached) }, "/"),
	} {
		t.Run(name, func(t *testing.T) {
			s := routetest.Serve(t, s)
			for range 2 {
				routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/api/orders/7", "")).MustBe(t, 500, "LOCK_POLICY")
			}
		})
	}
	t.Run("stripped", func(t *testing.T) {
		mux := http.NewServeMux()
		mux.Handle("/v1/", http.StripPrefix("/v1", tab.Handler()(muxOf(never, "POST /items/{id}"))))
		s := routetest.Serve(t, mux)
		routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/v1/items/7", "")).MustBe(t, 500, "LOCK_POLICY")
	})
	if n := strings.Count(logged.String(), "a lock table is in front of a router"); n != 4 {
		t.Errorf("%d lines; want one for each route: %s", n, logged)
	}
}

func TestTableInFrontOfARouterOfChiRunsNothingThatHasARule(t *testing.T) {
	e, _ := routetest.Open(t)
	logtest.Capture(t)
	tab := table(t, e, map[string]string{"POST /api/{sku:[a-z/]+}.json": "{path.sku}", "/api/files/*": "{path.*}"})
	for _, path := range []string{"/api/a.json", "/api/files/x/y"} {
		r := httptest.NewRequest(http.MethodPost, path, nil)
		r.Pattern = "/api/*"
		w := httptest.NewRecorder()
		tab.Handler()(routetest.Never(t)).ServeHTTP(w, r)
		if w.Code != 500 {
			t.Errorf("%s: got %d", path, w.Code)
		}
	}
}

// chi and echo serve HEAD by a catch-all, and not by a route for GET: that is no fault of the
// program, which a client could put into its log.
func TestHEADThatARouterDoesNotServeByGETIsRefusedAsTheClients(t *testing.T) {
	e, _ := routetest.Open(t)
	logged := logtest.Capture(t)
	tab := table(t, e, map[string]string{"GET /a/{x}": "{path.x}"})
	if err := tab.Validate("GET /a/{x}", "/*"); err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]int{http.MethodHead: 400, http.MethodGet: 500} {
		r := httptest.NewRequest(method, "/a/1", nil)
		r.Pattern = "/*"
		w := httptest.NewRecorder()
		tab.Handler()(routetest.Never(t)).ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("%s: got %d %s; want %d", method, w.Code, w.Body, want)
		}
		if method == http.MethodHead && strings.Contains(logged.String(), "HEAD") {
			t.Errorf("HEAD is in the log: %s", logged)
		}
	}
}

func TestValidatedTableKnowsWhichRouteIsCloser(t *testing.T) {
	e, _ := routetest.Open(t)
	logtest.Capture(t)
	tab := table(t, e, map[string]string{"/a/{x}": "{path.x}"})
	routes := []string{"POST /a/{x}", "/"}
	s := routetest.Serve(t, muxOf(tab.Handler(), routes...))
	routetest.Get(t, s, "/a/1").MustBe(t, 500, "LOCK_POLICY") // which may have lost its way
	if err := tab.Validate(routes...); err != nil {
		t.Fatal(err)
	}
	if a := routetest.Get(t, s, "/a/1"); a.Body != "unlocked" {
		t.Errorf("got %d %q; want the handler of /", a.Status, a.Body)
	}
	if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/a/1", "")); a.Body != "1" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	inFront := routetest.Serve(t, muxOf(func(http.Handler) http.Handler {
		return tab.Handler()(muxOf(func(http.Handler) http.Handler { return routetest.Never(t) }, routes[0]))
	}, "/"))
	routetest.Send(t, inFront, routetest.NewRequest(t, inFront, http.MethodPost, "/a/1", "")).MustBe(t, 500, "LOCK_POLICY")

	// A route that is closer and has no rule takes nobody round one.
	if err := tab.Validate("/a/{x}", "/b/", "/b/{x}"); err != nil {
		t.Fatal(err)
	}
	inFront = routetest.Serve(t, muxOf(func(http.Handler) http.Handler { return tab.Handler()(http.HandlerFunc(routetest.TellKey)) }, "/b/"))
	if a := routetest.Get(t, inFront, "/b/1"); a.Body != "unlocked" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
}

func TestRoutesWithoutARulePassThrough(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{"POST /products/{sku}": "{path.sku}"})
	s := routetest.Serve(t, muxOf(tab.Handler(), "/", "POST /products/{sku}", "POST /products/special", "GET /products/{sku}", "POST /products/{sku}/reviews/{rest...}"))
	for _, at := range []string{"GET /", "POST /", "POST /products/special", "GET /products/7", "POST /products/7/reviews/", "DELETE /products", "POST /products/"} {
		method, path, _ := strings.Cut(at, " ")
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, method, path, "")); a.Status != 200 || a.Body != "unlocked" {
			t.Errorf("%s: got %d %q", at, a.Status, a.Body)
		}
	}
}

func TestSlashThatChiLeavesOutIsNoWayRound(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{"POST /x/": "x", "/y/{id}/": "{path.id}", "/both": "both", "/both/": "slash"})
	for _, tc := range []struct{ pattern, path, want string }{
		{"/x", "/x/", "x"},
		{"/x", "/x", "unlocked"},
		{"/y/{id}", "/y/7/", "7"},
		{"/both", "/both", "both"},
		{"/both", "/both/", "slash"},
		{"/y/{id}", "/y/7%2F", "unlocked"},
	} {
		r := httptest.NewRequest(http.MethodPost, tc.path, nil)
		r.Pattern = tc.pattern
		r.SetPathValue("id", "7")
		w := httptest.NewRecorder()
		tab.Handler()(http.HandlerFunc(routetest.TellKey)).ServeHTTP(w, r)
		if w.Body.String() != tc.want {
			t.Errorf("%s by %s: got %d %s; want %s", tc.path, tc.pattern, w.Code, w.Body, tc.want)
		}
	}
}
