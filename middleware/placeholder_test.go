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

func TestBadPoliciesAndOptionsAreRefusedWhenRegistered(t *testing.T) {
	e, _ := routetest.Open(t)
	value := func(*gin.Context) (string, error) { return "v", nil }
	for _, tc := range []struct {
		name    string
		engine  *core.Engine
		key     string
		options []Option
		says    string // the error; "" if there is none
	}{
		{name: "good", engine: e, key: "{path.x}"},
		{name: "good with options", engine: e, key: "{v}:{body.x}", options: []Option{nil, WithValue("v", value), WithBodyLimit(10), WithFilter(nil), WithErrorHandler(nil)}},
		{name: "dotted value", engine: e, key: "{user.id}", options: []Option{WithValue("user.id", value)}},
		{name: "nil engine", key: "k", says: "core.New"},
		{name: "no key", engine: e, says: "Key"},
		{name: "malformed key", engine: e, key: "{path.x", says: "never closed"},
		{name: "unknown placeholder", engine: e, key: "{x}", says: "WithValue"},
		{name: "unknown prefix", engine: e, key: "{cookie.x}", says: "unknown"},
		{name: "prefix alone", engine: e, key: "{path}", says: "names no value"},
		{name: "prefix and dot", engine: e, key: "{query.}", says: "names no value"},
		{name: "empty name in body", engine: e, key: "{body.a..b}", says: "empty"},
		{name: "client's something", engine: e, key: "{client.port}", says: "{client.ip}"},
		{name: "impossible header", engine: e, key: "{header.X(Y)}", says: "name of a header"},
		{name: "header that net/http moves", engine: e, key: "{header.host}", says: "WithValue"},
		{name: "value unused", engine: e, key: "{path.x}", options: []Option{WithValue("v", value)}, says: "{v}"},
		{name: "value twice", engine: e, key: "{v}", options: []Option{WithValue("v", value), WithValue("v", value)}, says: "twice"},
		{name: "value nil", engine: e, key: "{v}", options: []Option{WithValue("v", nil)}, says: "nil"},
		{name: "value without name", engine: e, key: "k", options: []Option{WithValue("", value)}, says: "empty"},
		{name: "value with braces", engine: e, key: "{v}", options: []Option{WithValue("{v}", value)}, says: "braces"},
		{name: "value that shadows", engine: e, key: "{path.x}", options: []Option{WithValue("path.x", value)}, says: "built in"},
		{name: "value that shadows a prefix", engine: e, key: "{body}", options: []Option{WithValue("body", value)}, says: "built in"},
		{name: "filter twice", engine: e, key: "k", options: []Option{WithFilter(nil), WithFilter(nil)}, says: "twice"},
		{name: "error handler twice", engine: e, key: "k", options: []Option{WithErrorHandler(nil), WithErrorHandler(nil)}, says: "twice"},
		{name: "body limit twice", engine: e, key: "k", options: []Option{WithBodyLimit(1), WithBodyLimit(1)}, says: "twice"},
		{name: "body limit of nothing", engine: e, key: "k", options: []Option{WithBodyLimit(0)}, says: "WithBodyLimit(0)"},
		{name: "buffering off twice", engine: e, key: "k", options: []Option{WithoutBodyBuffer(), WithoutBodyBuffer()}, says: "twice"},
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
