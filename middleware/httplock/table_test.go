package httplock

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// table returns a table of rules whose keys are given by their patterns.
func table(t testing.TB, e *core.Engine, keys map[string]string, o ...Option) *Table {
	t.Helper()
	rules := Rules{}
	for pattern, key := range keys {
		rules[pattern] = core.Policy{Key: key}
	}
	tab, err := NewTable(e, rules, o...)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// muxOf has a route for each pattern, all behind around.
func muxOf(around func(http.Handler) http.Handler, patterns ...string) *http.ServeMux {
	mux := http.NewServeMux()
	for _, p := range patterns {
		mux.Handle(p, around(http.HandlerFunc(routetest.TellKey)))
	}
	return mux
}

func TestEachRouteHasItsOwnRule(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{
		"POST /products/{sku}/deduct": "stock:{path.sku}",
		"/refunds/{id}":               "refund:{path.id}",
		"PUT /refunds/{id}":           "put:{path.id}",
		"/hosts/{x}":                  "any:{path.x}",
		"shop.example/hosts/{x}":      "shop:{path.x}",
		"GET /both":                   "get",
		"HEAD /both":                  "head",
		"GET /heads":                  "get",
		"/split":                      "split",
		"/tree/{rest...}":             "tree:{path.rest}",
		"/exact/{$}":                  "exact",
		"/double":                     "double",
	})
	mux := muxOf(tab.Handler(),
		"POST /products/{sku}/deduct", "GET /products/{sku}", "/refunds/{id}",
		"/hosts/{x}", "shop.example/hosts/{x}", "else.example/hosts/{x}",
		"/both", "GET /heads", "GET /split", "POST /split", "/tree/{rest...}", "/exact/{$}", "/")
	s := routetest.Serve(t, mux)
	for _, tc := range []struct {
		method, host, path string
		want               string
	}{
		{"POST", "", "/products/7/deduct", "stock:7"},
		{"GET", "", "/products/7", "unlocked"},
		{"GET", "", "/refunds/7", "refund:7"},
		{"DELETE", "", "/refunds/7", "refund:7"},
		{"OPTIONS", "", "/refunds/7", "refund:7"},
		{"PURGE", "", "/refunds/7", "refund:7"},
		{"PUT", "", "/refunds/7", "put:7"},
		{"GET", "", "/hosts/7", "any:7"},
		{"GET", "shop.example", "/hosts/7", "shop:7"},
		{"GET", "else.example", "/hosts/7", "any:7"},
		{"GET", "", "/both", "get"},
		{"GET", "", "/heads", "get"},
		{"GET", "", "/split", "split"},
		{"POST", "", "/split", "split"},
		{"GET", "", "/tree/a/b", "tree:a%2Fb"},
		{"GET", "", "/exact/", "exact"},
		{"GET", "", "/elsewhere", "unlocked"},
	} {
		r := routetest.NewRequest(t, s, tc.method, tc.path, "")
		r.Host = tc.host
		if a := routetest.Send(t, s, r); a.Status != 200 || a.Body != tc.want {
			t.Errorf("%s %s%s: got %d %q; want %q", tc.method, tc.host, tc.path, a.Status, a.Body, tc.want)
		}
	}
}

func TestHeadIsLockedByTheRuleForGet(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{"GET /get/{x}": "get:{path.x}", "GET /any/{x}": "any:{path.x}", "HEAD /own/{x}": "own:{path.x}", "GET /own/{x}": "not this", "HEAD /by/{x}": "by:{path.x}", "GET /by/{x}": "not this"})
	s := routetest.Serve(t, muxOf(tab.Handler(), "GET /get/{x}", "/any/{x}", "/own/{x}", "GET /by/{x}"))
	for path, key := range map[string]string{"/get/a": "get:a", "/any/a": "any:a", "/own/a": "own:a", "/by/a": "by:a"} {
		release := routetest.Hold(t, e, key)
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodHead, path, "")); a.Status != 409 || a.Body != "" {
			t.Errorf("HEAD %s: got %d %q; want 409", path, a.Status, a.Body)
		}
		release()
		routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodHead, path, "")).MustBe(t, 200, "")
	}
}

func TestRulesOfATableExcludeEachOther(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{"POST /a/{x}": "{path.x}", "POST /b/{x}": "{path.x}"})
	release := routetest.Hold(t, e, "1")
	s := routetest.Serve(t, muxOf(tab.Handler(), "POST /a/{x}", "POST /b/{x}"))
	for path, status := range map[string]int{"/a/1": 409, "/b/1": 409, "/b/2": 200} {
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, "")); a.Status != status {
			t.Errorf("%s: got %d %s; want %d", path, a.Status, a.Body, status)
		}
	}
	release()
}

func TestMethodThatAMiddlewareHasChangedIsNoWayRound(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{"POST /x/{id}": "post:{path.id}", "/y/{id}": "y:{path.id}"})
	override := func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Method = r.Header.Get("X-Http-Method-Override")
			tab.Handler()(h).ServeHTTP(w, r)
		})
	}
	s := routetest.Serve(t, muxOf(override, "POST /x/{id}", "POST /y/{id}"))
	for path, want := range map[string]string{"/x/1": "post:1", "/y/1": "y:1"} {
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, "", "X-HTTP-Method-Override", "DELETE")); a.Body != want {
			t.Errorf("%s: got %d %q; want %q", path, a.Status, a.Body, want)
		}
	}
}

func TestRuleNeedsNotNameWildcardsLikeItsRoute(t *testing.T) {
	e, _ := routetest.Open(t)
	logtest.Capture(t)
	tab := table(t, e, map[string]string{"POST /a/{id}": "all", "POST /b/{id}": "{path.id}", "/c/{rest...}": "c"})
	s := routetest.Serve(t, muxOf(tab.Handler(), "POST /a/{sku}", "POST /b/{sku}", "/c/"))
	for path, want := range map[string]string{"/a/1": "all", "/c/x": "c"} {
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, "")); a.Body != want {
			t.Errorf("%s: got %d %q; want %q", path, a.Status, a.Body, want)
		}
	}
	// The key cannot be had of this route.
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/b/1", "")).MustBe(t, 500, "LOCK_POLICY")
}

func TestPatternsOfChiAreUnderstood(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{
		"POST /products/{sku:[a-z]+}": "stock:{path.sku}",
		"/refunds/{id}":               "refund:{path.id}",
		"/files/*":                    "file:{path.*}",
	})
	for _, tc := range []struct{ method, pattern, name, want string }{
		{"POST", "/products/{sku:[a-z]+}", "sku", "stock:v"},
		{"GET", "/products/{sku:[a-z]+}", "sku", "unlocked"},
		{"POST", "/products/{id:[0-9]+}", "id", "unlocked"},
		{"PUT", "/refunds/{id}", "id", "refund:v"},
		{"GET", "/files/*", "*", "file:v"},
	} {
		r := httptest.NewRequest(tc.method, "/some/path", nil)
		r.Pattern = tc.pattern
		r.SetPathValue(tc.name, "v")
		w := httptest.NewRecorder()
		tab.Handler()(http.HandlerFunc(routetest.TellKey)).ServeHTTP(w, r)
		if w.Body.String() != tc.want {
			t.Errorf("%s %s: got %d %s; want %s", tc.method, tc.pattern, w.Code, w.Body, tc.want)
		}
	}
}

func TestOptionsHoldForTheWholeTable(t *testing.T) {
	e, _ := routetest.Open(t)
	value := WithValue("tenant", func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil })
	filter := WithFilter(func(r *http.Request) bool { return r.Method != http.MethodOptions })
	tab := table(t, e, map[string]string{"/a": "a:{tenant}", "/b": "b"}, value, filter)
	s := routetest.Serve(t, muxOf(tab.Handler(), "/a", "/b"))
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/a", "a:t"}, {"GET", "/b", "b"}, {"OPTIONS", "/a", "unlocked"},
	} {
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, tc.method, tc.path, "", "X-Tenant", "t")); a.Body != tc.want {
			t.Errorf("%s %s: got %d %q; want %q", tc.method, tc.path, a.Status, a.Body, tc.want)
		}
	}
}
