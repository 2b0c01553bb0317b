// Package routetest tests locks and fences around the routes of an HTTP server. The cases
// are the same for every router; an adapter puts them on one.
package routetest

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/problem"
)

// Open returns an engine on a store of its own, both of which end with the test.
func Open(t testing.TB) (*core.Engine, *memlock.Driver) {
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

// Serve serves h by real HTTP until the test ends: by HTTP/2 with TLS, or by HTTP/1.
func Serve(t testing.TB, h http.Handler, http2 ...bool) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if len(http2) > 0 && http2[0] {
		s.EnableHTTP2 = true
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s
}

// Answer is a response that was read to its end.
type Answer struct {
	Status  int
	Header  http.Header
	Body    string
	Problem problem.Problem // if the body is one
}

// Send may be called from any goroutine. It returns a zero answer, and the test fails, if
// there was none.
func Send(t testing.TB, s *httptest.Server, r *http.Request) (a Answer) {
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
	a = Answer{Status: res.StatusCode, Header: res.Header, Body: string(body)}
	if res.Header.Get("Content-Type") == "application/problem+json" && len(body) > 0 {
		if err := json.Unmarshal(body, &a.Problem); err != nil {
			t.Errorf("%v in %s", err, body)
		}
	}
	return a
}

// NewRequest returns a request to s. The headers are pairs of name and value.
func NewRequest(t testing.TB, s *httptest.Server, method, path, body string, headers ...string) *http.Request {
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

// Get sends a GET request.
func Get(t testing.TB, s *httptest.Server, path string) Answer {
	t.Helper()
	return Send(t, s, NewRequest(t, s, http.MethodGet, path, ""))
}

// Post sends a POST request without a body and with these values of the header that fencing
// tokens are in.
func Post(t testing.TB, s *httptest.Server, path string, tokens ...string) Answer {
	t.Helper()
	r := NewRequest(t, s, http.MethodPost, path, "")
	for _, v := range tokens {
		r.Header.Add("fencing-token", v)
	}
	return Send(t, s, r)
}

// MustBe fails the test unless a has this status and, if it is a problem, code.
func (a Answer) MustBe(t testing.TB, status int, code string) {
	t.Helper()
	if a.Status != status || a.Problem.Code != code {
		t.Errorf("answer is %d %q %s; want %d %q", a.Status, a.Problem.Code, a.Body, status, code)
	}
}

// TellKey is a handler that answers with the key of the lock that it runs under.
func TellKey(w http.ResponseWriter, r *http.Request) {
	key := "unlocked"
	if lease, ok := core.LeaseFrom(r.Context()); ok {
		key = lease.Key()
	}
	_, _ = fmt.Fprint(w, key)
}

// Never returns a handler that must not run.
func Never(t testing.TB) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler runs") }
}

// Free reports whether a key can be locked at once.
func Free(t testing.TB, e *core.Engine, key string) bool {
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

// Hold takes a key until the function that it returns is called.
func Hold(t testing.TB, e *core.Engine, key string) (release func()) {
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

// Dial opens a connection to s and sends text.
func Dial(t testing.TB, s *httptest.Server, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // often closed before
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}
