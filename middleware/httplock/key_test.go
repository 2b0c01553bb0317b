package httplock

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestKeyComesFromWhereItSays(t *testing.T) {
	const secret = "s3cret"
	tenant := WithValue("tenant", func(r *http.Request) (string, error) {
		switch v := r.Header.Get("X-Tenant"); v {
		case "missing":
			return "", core.ErrMissing
		case "large":
			return "", fmt.Errorf("%w: %s", core.ErrTooLarge, secret)
		case "broken":
			return "", errors.New(secret)
		default:
			return v, nil
		}
	})
	const jsonType, formType = "application/json", "application/x-www-form-urlencoded"
	for _, tc := range []struct {
		name    string
		key     string
		option  Option
		method  string // POST unless given
		target  string // of route /products/{sku}/{rest...}; "/products/a/r" unless given
		body    string
		headers []string
		want    string // the key; "" if refused
		status  int    // if refused; 400 unless given
	}{
		{name: "literal", key: "all", want: "all"},
		{name: "path", key: "stock:{path.sku}", want: "stock:a"},
		{name: "path is escaped", key: "stock:{path.sku}", target: "/products/a:b/r", want: "stock:a%3Ab"},
		{name: "path is unescaped once", key: "stock:{path.sku}", target: "/products/a%2Fb/r", want: "stock:a%2Fb"},
		{name: "rest of the path", key: "stock:{path.rest}", target: "/products/a/b/c", want: "stock:b%2Fc"},
		{name: "rest of the path empty", key: "stock:{path.rest}", target: "/products/a/"},
		{name: "query", key: "stock:{query.x}", target: "/products/a/r?y=2&x=1", want: "stock:1"},
		{name: "two of the query", key: "{query.x}:{query.y}", target: "/products/a/r?y=2&x=1", want: "1:2"},
		{name: "query missing", key: "stock:{query.x}"},
		{name: "query empty", key: "stock:{query.x}", target: "/products/a/r?x="},
		{name: "query repeated", key: "stock:{query.x}", target: "/products/a/r?x=1&x=2"},
		{name: "query in another case", key: "stock:{query.x}", target: "/products/a/r?X=1"},
		{name: "header", key: "stock:{header.x-tenant}", headers: []string{"X-Tenant", "t1"}, want: "stock:t1"},
		{name: "header missing", key: "stock:{header.X-Tenant}"},
		{name: "header empty", key: "stock:{header.X-Tenant}", headers: []string{"X-Tenant", ""}},
		{name: "header repeated", key: "stock:{header.X-Tenant}", headers: []string{"X-Tenant", "a", "X-Tenant", "b"}},
		{name: "client address", key: "client:{client.ip}", want: "client:127.0.0.1"},
		{name: "client address from nobody trusted", key: "client:{client.ip}", headers: []string{"X-Forwarded-For", "1.2.3.4", "X-Real-Ip", "1.2.3.4"}, want: "client:127.0.0.1"},
		{name: "own value", key: "stock:{tenant}", option: tenant, headers: []string{"X-Tenant", "t1"}, want: "stock:t1"},
		{name: "own value empty", key: "stock:{tenant}", option: tenant},
		{name: "own value missing", key: "stock:{tenant}", option: tenant, headers: []string{"X-Tenant", "missing"}},
		{name: "own value's error", key: "stock:{tenant}", option: tenant, headers: []string{"X-Tenant", "broken"}},
		{name: "own value too large", key: "stock:{tenant}", option: tenant, headers: []string{"X-Tenant", "large"}, status: 413},
		{name: "several", key: "{path.sku}/{query.x}:{header.X-Tenant}", target: "/products/a/r?x=1", headers: []string{"X-Tenant", "t"}, want: "a/1:t"},

		{name: "JSON body", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType}, want: "stock:a"},
		{name: "JSON body, two values", key: "{body.order.sku}:{body.id}", body: `{"id":7,"order":{"sku":"a"}}`, headers: []string{"Content-Type", jsonType + "; charset=UTF-8"}, want: "a:7"},
		{name: "JSON body with GET", key: "stock:{body.sku}", method: "GET", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType}},
		{name: "JSON body, repeated", key: "stock:{body.sku}", body: `{"sku":"a","SKU":"b"}`, headers: []string{"Content-Type", jsonType}},
		{name: "JSON body without type", key: "stock:{body.sku}", body: `{"sku":"a"}`},
		{name: "compressed body", key: "stock:{body.sku}", body: `{"sku":"a"}`, headers: []string{"Content-Type", jsonType, "Content-Encoding", "gzip"}},
		{name: "no body", key: "stock:{body.sku}", headers: []string{"Content-Type", jsonType}},
		{name: "form body", key: "stock:{body.sku}", body: "n=1&sku=a", headers: []string{"Content-Type", formType}, want: "stock:a"},
		{name: "form body beside the query", key: "stock:{body.sku}", target: "/products/a/r?sku=b", body: "sku=a", headers: []string{"Content-Type", formType}, want: "stock:a"},
		{name: "form body with DELETE", key: "stock:{body.sku}", method: "DELETE", body: "sku=a", headers: []string{"Content-Type", formType}},
		{name: "multipart body", key: "stock:{body.sku}", body: "--x\r\nContent-Disposition: form-data; name=\"sku\"\r\n\r\na\r\n--x--\r\n", headers: []string{"Content-Type", "multipart/form-data; boundary=x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e, _ := routetest.Open(t)
			mux := http.NewServeMux()
			mux.Handle("/products/{sku}/{rest...}", Lock(e, core.Policy{Key: tc.key}, tc.option)(http.HandlerFunc(routetest.TellKey)))
			s := routetest.Serve(t, mux)
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			if tc.target == "" {
				tc.target = "/products/a/r"
			}
			a := routetest.Send(t, s, routetest.NewRequest(t, s, tc.method, tc.target, tc.body, tc.headers...))
			if tc.want != "" {
				if a.Status != 200 || a.Body != tc.want {
					t.Errorf("got %d %q; want the key %q", a.Status, a.Body, tc.want)
				}
				return
			}
			if tc.status == 0 {
				a.MustBe(t, 400, "LOCK_KEY_INVALID")
			} else {
				a.MustBe(t, tc.status, "BODY_TOO_LARGE")
			}
			if p := a.Problem.Placeholder; p == "" || !strings.Contains(tc.key, "{"+p+"}") {
				t.Errorf("placeholder is %q in %s", p, a.Body)
			}
			if strings.Contains(a.Body, secret) {
				t.Errorf("the error's text is shown: %s", a.Body)
			}
		})
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

func TestBadPoliciesAndOptionsAreRefusedWhenRegistered(t *testing.T) {
	e, _ := routetest.Open(t)
	value := func(*http.Request) (string, error) { return "v", nil }
	for _, tc := range []struct {
		name    string
		engine  *core.Engine
		key     string
		options []Option
		says    string // the error; "" if there is none
	}{
		{name: "good", engine: e, key: "{path.x}"},
		{name: "good with options", engine: e, key: "{v}:{body.x}", options: []Option{nil, WithValue("v", value), WithBodyLimit(10), WithFilter(nil), WithErrorHandler(nil)}},
		{name: "nil engine", key: "k", says: "core.New"},
		{name: "no key", engine: e, says: "Key"},
		{name: "malformed key", engine: e, key: "{path.x", says: "never closed"},
		{name: "unknown placeholder", engine: e, key: "{x}", says: "WithValue"},
		{name: "header that net/http moves", engine: e, key: "{header.host}", says: "WithValue"},
		{name: "value unused", engine: e, key: "{path.x}", options: []Option{WithValue("v", value)}, says: "{v}"},
		{name: "value nil", engine: e, key: "{v}", options: []Option{WithValue("v", nil)}, says: "nil"},
		{name: "value that shadows", engine: e, key: "{path.x}", options: []Option{WithValue("path.x", value)}, says: "built in"},
		{name: "filter twice", engine: e, key: "k", options: []Option{WithFilter(nil), WithFilter(nil)}, says: "twice"},
		{name: "error handler twice", engine: e, key: "k", options: []Option{WithErrorHandler(nil), WithErrorHandler(nil)}, says: "twice"},
		{name: "body limit of nothing", engine: e, key: "k", options: []Option{WithBodyLimit(0)}, says: "WithBodyLimit(0)"},
		{name: "buffering off with a limit", engine: e, key: "k", options: []Option{WithoutBodyBuffer(), WithBodyLimit(1)}, says: "no effect"},
		{name: "buffering off with a body", engine: e, key: "{body.x}", options: []Option{WithoutBodyBuffer()}, says: "{body.…}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h, err := New(tc.engine, core.Policy{Key: tc.key}, tc.options...)
			if tc.says == "" {
				if h == nil || err != nil {
					t.Fatalf("got %v", err)
				}
				return
			}
			if h != nil || err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("got %v; want an error about %q", err, tc.says)
			}
			defer func() {
				if p, ok := recover().(error); !ok || p.Error() != err.Error() {
					t.Errorf("Lock panics with %v; want %v", p, err)
				}
			}()
			Lock(tc.engine, core.Policy{Key: tc.key}, tc.options...)
		})
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
