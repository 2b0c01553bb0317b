package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware"
	"github.com/lockaround/lockaround/middleware/httplock"
)

// What a client sends for a key is bounded: a body's size and depth, and the key that all
// values make together. One value may be as long as the server lets it be: what it adds
// to a key is not.
func TestWhatAClientSendsForAKeyIsBounded(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	locks, err := core.New(memlock.New(), core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locks.Close() }()
	nested := func(levels int) string {
		return `{"sku":"a","x":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + "}"
	}
	filled := func(size int) string { return `{"sku":"` + strings.Repeat("a", size-10) + `"}` }
	const body = "stock:{body.sku}"
	for _, tt := range []struct {
		name, key, body string
		header          int // bytes of each of the headers A to F
		status          int
		says            string
	}{
		{name: "a body of a MiB", key: body, body: filled(1 << 20), status: 200},
		{name: "a body of a MiB and one", key: body, body: filled(1<<20 + 1), status: 413, says: "BODY_TOO_LARGE"},
		{name: "a body 128 deep", key: body, body: nested(128), status: 200},
		{name: "a body 129 deep", key: body, body: nested(129), status: 400, says: "nested more than 128 deep"},
		{name: "a long header", key: "stock:{header.A}", header: 1 << 19, status: 200},
		{name: "five long headers", key: "{header.A}:{header.B}:{header.C}:{header.D}:{header.E}", header: 300, status: 200},
		{name: "more than a key's bytes", key: "{header.A}:{header.B}:{header.C}:{header.D}:{header.E}:{header.F}", header: 300, status: 400, says: "too long"},
	} {
		router := gin.New()
		router.POST("/", middleware.Lock(locks, core.Policy{Key: tt.key}), func(*gin.Context) {})
		for surface, h := range map[string]http.Handler{
			"gin":      router,
			"net/http": httplock.Lock(locks, core.Policy{Key: tt.key})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})),
		} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(tt.body))
			r.Header.Set("Content-Type", "application/json")
			for _, name := range []string{"A", "B", "C", "D", "E", "F"} {
				r.Header.Set(name, strings.Repeat("x", tt.header))
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.says) {
				t.Errorf("%s, %s: %d %s; want %d with %q", tt.name, surface, w.Code, w.Body, tt.status, tt.says)
			}
		}
	}
}
