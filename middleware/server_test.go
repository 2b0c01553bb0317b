package middleware

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// open returns an engine on a store of its own, both of which end with the test.
func open(t testing.TB) (*core.Engine, *memlock.Driver) {
	t.Helper()
	d := memlock.New()
	e, err := core.New(d, core.WithNamespace("test"), core.WithStoreTimeout(2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e, d
}

// newRouter returns a router that logs nothing and passes contexts on.
func newRouter() *gin.Engine {
	r := gin.New()
	r.ContextWithFallback = true
	return r
}

// serve serves h by real HTTP until the test ends.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// answer is a response that was read to its end.
type answer struct {
	status  int
	header  http.Header
	body    string
	problem problem.Problem // if the body is one
}

// send may be called from any goroutine. It returns a zero answer, and the test
// fails, if there was none.
func send(t testing.TB, s *httptest.Server, r *http.Request) (a answer) {
	t.Helper()
	res, err := s.Client().Do(r)
	if err != nil {
		t.Error(err)
		return a
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	a = answer{status: res.StatusCode, header: res.Header, body: string(body)}
	if res.Header.Get("Content-Type") == "application/problem+json" && len(body) > 0 {
		if err := json.Unmarshal(body, &a.problem); err != nil {
			t.Errorf("%v in %s", err, body)
		}
	}
	return a
}

// newRequest returns a request to s. The headers are pairs of name and value.
func newRequest(t testing.TB, s *httptest.Server, method, path, body string, headers ...string) *http.Request {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, from)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

// get sends a GET request.
func get(t testing.TB, s *httptest.Server, path string) answer {
	t.Helper()
	return send(t, s, newRequest(t, s, http.MethodGet, path, ""))
}

// mustBe fails the test unless a has this status and, if it is a problem, code.
func (a answer) mustBe(t testing.TB, status int, code string) {
	t.Helper()
	if a.status != status || a.problem.Code != code {
		t.Errorf("answer is %d %q %s; want %d %q", a.status, a.problem.Code, a.body, status, code)
	}
}

// tellKey is a handler that answers with the key of the lock it runs under.
func tellKey(c *gin.Context) {
	lease, ok := core.LeaseFrom(c.Request.Context())
	if !ok {
		c.String(http.StatusOK, "unlocked")
		return
	}
	c.String(http.StatusOK, lease.Key())
}

// free reports whether a key can be locked at once.
func free(t testing.TB, e *core.Engine, key string) bool {
	t.Helper()
	l, err := e.Acquire(t.Context(), core.Policy{Key: key})
	if err != nil {
		return false
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return true
}

// hold takes a key until the function that it returns is called.
func hold(t testing.TB, e *core.Engine, key string) (release func()) {
	t.Helper()
	l, err := e.Acquire(t.Context(), core.Policy{Key: key})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
