package httplock

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestPathValueIsUnescapedOnce(t *testing.T) {
	e, _ := routetest.Open(t)
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}", Lock(e, core.Policy{Key: "stock:{path.sku}"})(http.HandlerFunc(routetest.TellKey)))
	s := routetest.Serve(t, mux)
	if a := routetest.Post(t, s, "/products/a%2Fb"); a.Status != 200 || a.Body != "stock:a%2Fb" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	products := guarded(t, &fence.Memory{})
	if a := routetest.Post(t, products, "/products/a%2Fb", "stock%3Aa%252Fb=1"); a.Status != 200 || a.Body != "1" {
		t.Errorf("a fence: got %d %q", a.Status, a.Body)
	}
}

func TestEmptyRestOfAPathIsNoKey(t *testing.T) {
	e, _ := routetest.Open(t)
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}/{rest...}", Lock(e, core.Policy{Key: "stock:{path.rest}"})(http.HandlerFunc(routetest.TellKey)))
	a := routetest.Post(t, routetest.Serve(t, mux), "/products/a/")
	a.MustBe(t, 400, "LOCK_KEY_INVALID")
	if a.Problem.Placeholder != "path.rest" {
		t.Errorf("the problem is with %q", a.Problem.Placeholder)
	}
}

func TestPeerOnAUnixSocketHasNoAddress(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for remote, want := range map[string]string{"@": "", "1.2.3.4:5": "1.2.3.4:5"} {
		r.RemoteAddr = remote
		if got := (&request{r: r}).ClientIP(); got != want {
			t.Errorf("the address of %q is %q; want %q", remote, got, want)
		}
	}
}

func TestRouteThatDoesNotFitItsKeyNeverRuns(t *testing.T) {
	e, _ := routetest.Open(t)
	logged := logtest.Capture(t)
	lock := Lock(e, core.Policy{Key: "stock:{path.sku}"})
	mux := http.NewServeMux()
	mux.Handle("GET /fits/{sku}", lock(http.HandlerFunc(routetest.TellKey)))
	mux.Handle("GET /rest/{sku...}", lock(http.HandlerFunc(routetest.TellKey)))
	mux.Handle("GET /other/{id}", lock(routetest.Never(t)))
	mux.Handle("GET /none", lock(routetest.Never(t)))
	front := http.NewServeMux()
	front.Handle("/", mux)
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/front" {
			lock(routetest.Never(t)).ServeHTTP(w, r)
			return
		}
		front.ServeHTTP(w, r)
	}))
	for range 2 {
		for path, status := range map[string]int{
			"/fits/a": 200, "/rest/a/b": 200, "/rest/": 400, "/other/a": 500, "/none": 500, "/front": 500,
		} {
			a := routetest.Get(t, s, path)
			if a.Status != status || status == 500 && a.Problem.Code != "LOCK_POLICY" || status == 400 && a.Problem.Code != "LOCK_KEY_INVALID" {
				t.Errorf("%s: got %d %s; want %d", path, a.Status, a.Body, status)
			}
		}
	}
	s.Close()
	for _, route := range []string{`route="GET /other/{id}"`, `route="GET /none"`, `route=""`} {
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

func TestPathValueOfAnotherRouterIsAsGood(t *testing.T) {
	e, _ := routetest.Open(t)
	lock := Lock(e, core.Policy{Key: "stock:{path.sku}"})(http.HandlerFunc(routetest.TellKey))
	for _, pattern := range []string{"", "/sub/{id}", "/{sku:[a-z]+}"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Pattern = pattern
		r.SetPathValue("sku", "a")
		w := httptest.NewRecorder()
		lock.ServeHTTP(w, r)
		if w.Body.String() != "stock:a" {
			t.Errorf("pattern %q: got %d %s", pattern, w.Code, w.Body)
		}
	}
}
