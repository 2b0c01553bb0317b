package httplock

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// What is refused because a route with a rule may be meant, or may be behind the one that
// the request has come by, is 400 if only this client can have written it so.
func TestRequestPastARuleIsRefusedAndNoOther(t *testing.T) {
	e, _ := routetest.Open(t)
	for _, tc := range []struct {
		rule, other string // each other route has no rule, but is known
		by          string // the pattern that the request has come by
		path        string
		want        int
	}{
		{"/orders/{id}", "/*", "/*", "/orders/1", 500},
		{"/orders/{id}", "/*", "/*", "/other", 204},
		{"/orders/{id}", "/*", "/*", "//orders/1", 400},
		{"/orders/{id}", "/*", "/*", "/orders/./1", 400},
		{"/orders/{id}", "/*", "/*", "/%6frders/1", 400},
		{"/re/{id:[0-9]+}", "/*", "/*", "/re/7", 500},
		{"/re/{id:[0-9]+}", "/*", "/*", "/re/abc", 204},
		{"/re/{id:.+}", "/re/{id}/items", "/re/{id}/items", "/re/5/items", 204},
		{"/re/{id:[a-z0-9]+}", "/re/{id:[a-z]+}", "/re/{id:[a-z]+}", "/re/abc", 204},
		{"/a/{x}/c", "/a/b/{y}", "/a/*", "/a/z/c", 500},
		{"/a/b/{y}", "/a/{x}/c", "/a/*", "/a/b/z", 500},
		{"/a/b/{y}", "/a/{x}/c", "/a/*", "/a/z/c", 204},
		{"/s/{id}/", "/*", "/*", "/s/1", 204},
		{"/s/{id}/", "/*", "/*", "/s/1/", 500},
		{"/s/{id}/", "/*", "/*", "/s/1/2", 204},
		{"/s/{id}/", "/", "/", "/s/1/2", 500},
		{"/orders/{id}", "/", "/", "/orders%2f1", 400},
		{"/orders/{id}", "/*", "/*", "/%6frders%2F1", 400},
		{"/orders/{id}", "/", "/", "/x/../orders/1", 400},
		{"/re/{id:[0-9]+}", "/*", "/*", "//re/1", 400},
		{"/re/{id:[0-9]+}", "/*", "/*", "/x/../re/1", 400},
		{"GET /re/{id:[0-9]+}", "/*", "/*", "/re/1", 204},
		{"/api/{sku:[a-z/]+}.json", "/api/*", "/api/*", "/api/a/b.json", 500},
		{"/api/{sku:[a-z/]+}.json", "/api/*", "/api/*", "/api/a/b.xml", 204},
		{"/api/orders/{id}/items", "/api/*", "/api/*", "/api/orders//items", 400},
		{"EXAMPLE.com/pay", "/pay", "/pay", "/pay", 0},
		{"example.com/pay", "/pay", "/pay", "/pay", 0},
	} {
		t.Run(tc.path+" by "+tc.by+" beside "+tc.rule, func(t *testing.T) {
			logged := logtest.Capture(t)
			tab := table(t, e, map[string]string{tc.rule: "k"})
			if tc.want != 0 {
				if err := tab.Validate(tc.rule, tc.other); err != nil {
					t.Fatal(err)
				}
			}
			r := httptest.NewRequest(http.MethodPost, "http://example.com"+tc.path, nil)
			r.Pattern = tc.by
			got := passes(tab, r)
			want := tc.want
			if want == 0 {
				want = http.StatusOK // a rule for a host, of which the router does not know
			}
			if got != want {
				t.Errorf("got %d, want %d", got, want)
			}
			if text := logged.String(); want < 500 && text != "" {
				t.Errorf("logged %s", text)
			}
		})
	}
}

func TestSpellingOfAHostIsNoWayPastItsRule(t *testing.T) {
	e, _ := routetest.Open(t)
	for _, tc := range []struct {
		rule  string
		by    string
		hosts []string
		want  int
	}{
		{"POST example.com/pay", "POST /pay", []string{"example.com", "EXAMPLE.com", "example.com.", "Example.Com.:80", "example.com:"}, 200},
		{"POST example.com/pay", "POST /pay", []string{"example.org", "example.com.org", "sub.example.com"}, 204},
		{"POST [::1]/pay", "POST /pay", []string{"[::1]", "[::1]:80", "[0:0::1]:80"}, 200},
		{"POST ::1/pay", "POST /pay", []string{"[::1]", "[::1]:80"}, 200},
		// The router has a route for the host, and has not taken it.
		{"POST example.com/pay", "/", []string{"EXAMPLE.com", "example.com.:80"}, 400},
		{"POST example.com/pay", "/", []string{"example.org"}, 204},
	} {
		tab := table(t, e, map[string]string{tc.rule: "k"})
		if tc.by == "/" {
			if err := tab.Validate(tc.rule, tc.by); err != nil {
				t.Fatal(err)
			}
		}
		for _, host := range tc.hosts {
			r := httptest.NewRequest(http.MethodPost, "/pay", nil)
			r.Host, r.Pattern = host, tc.by
			if got := passes(tab, r); got != tc.want {
				t.Errorf("Host %s by %s beside %s: got %d, want %d", host, tc.by, tc.rule, got, tc.want)
			}
		}
	}
}

func TestConnectIsNoWayPastARule(t *testing.T) {
	e, _ := routetest.Open(t)
	tab := table(t, e, map[string]string{"/refunds/{id}": "k"})
	if err := tab.Validate("/refunds/{id}", "/"); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"//refunds/1", "/refunds/./1", "/x/../refunds/1"} {
		r := httptest.NewRequest(http.MethodConnect, path, nil)
		r.URL.Path, r.Pattern = path, "/"
		if got := passes(tab, r); got != http.StatusBadRequest {
			t.Errorf("CONNECT %s: got %d, want 400", path, got)
		}
	}
}

// A path of a megabyte is split for no rule.
func TestLongPathCostsLittleBesideManyRules(t *testing.T) {
	e, _ := routetest.Open(t)
	keys, routes := map[string]string{}, []string{"/*"}
	for i := range 50 {
		rule := fmt.Sprintf("POST /api/r%d/{id:[0-9]+}", i)
		keys[rule], routes = "k", append(routes, rule)
	}
	tab := table(t, e, keys)
	if err := tab.Validate(routes...); err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.URL.Path, r.Pattern = strings.Repeat("/", 1<<20), "/*"
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if got := passes(tab, r); got != http.StatusNoContent {
				b.Fatalf("got %d", got)
			}
		}
	}).AllocedBytesPerOp()
	if limit := int64(32 << 20); allocated > limit {
		t.Errorf("one request allocates %d bytes; want at most %d", allocated, limit)
	}
}

// passes returns 200 for a request that runs locked, 204 for one that runs unlocked, and
// the status of a refusal.
func passes(tab *Table, r *http.Request) int {
	w := httptest.NewRecorder()
	tab.Handler()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, locked := core.LeaseFrom(r.Context()); !locked {
			w.WriteHeader(http.StatusNoContent)
		}
	})).ServeHTTP(w, r)
	return w.Code
}
