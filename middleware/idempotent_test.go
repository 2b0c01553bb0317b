package middleware

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/decorator/idempotent"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func surface() routetest.Surface {
	return routetest.Surface{Rest: "/b/c", ErrBody: ErrBody, Answered: answered, Mount: func(t testing.TB, routes ...routetest.Route) http.Handler {
		r := newRouter()
		for _, route := range routes {
			mount(t, r, route)
		}
		return r
	}}
}

func TestIdempotentRoutes(t *testing.T) { routetest.TestOnce(t, surface()) }

func TestTwoCallersWithTheSameKeyValueGetTheirOwnAnswers(t *testing.T) {
	routetest.TwoCallers(t, surface())
}

// paying returns a handler for a key of the path and the header.
func paying(t *testing.T) gin.HandlerFunc {
	e, _ := routetest.Open(t)
	return Idempotent(e, core.Policy{Key: "pay:{path.account}:{header.Idempotency-Key}"}, idempotent.NewMemory(100), idempotent.Policy{Died: idempotent.Rerun})
}

// pay pays by the key k.
func pay(h http.Handler) *httptest.ResponseRecorder {
	q := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader("1 EUR"))
	q.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q)
	return w
}

func TestHeldBackWriterBehavesAsGinsOwn(t *testing.T) {
	type state struct {
		status, size int
		written      bool
	}
	look := func(c *gin.Context) state { return state{c.Writer.Status(), c.Writer.Size(), c.Writer.Written()} }
	for name, do := range map[string]func(c *gin.Context){
		"nothing":            func(*gin.Context) {},
		"Status":             func(c *gin.Context) { c.Status(http.StatusNoContent) },
		"Status twice":       func(c *gin.Context) { c.Status(http.StatusNotFound); c.Status(http.StatusCreated) },
		"no Status":          func(c *gin.Context) { c.Status(0); c.Status(-1) },
		"AbortWithStatus":    func(c *gin.Context) { c.AbortWithStatus(http.StatusBadRequest) },
		"JSON":               func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"a": 1}) },
		"Status behind JSON": func(c *gin.Context) { c.JSON(http.StatusCreated, gin.H{"a": 1}); c.Status(http.StatusNotFound) },
		"WriteString":        func(c *gin.Context) { _, _ = c.Writer.WriteString("äöü") },
		"WriteHeaderNow":     func(c *gin.Context) { c.Writer.WriteHeaderNow() },
		"Flush":              func(c *gin.Context) { c.Status(http.StatusAccepted); c.Writer.Flush() },
		"Redirect":           func(c *gin.Context) { c.Redirect(http.StatusSeeOther, "/b") },
		"Data of 304":        func(c *gin.Context) { c.Data(http.StatusNotModified, "text/plain", []byte("x")) },
		"an error":           func(c *gin.Context) { _ = c.Error(errors.New("sold out")); c.Status(http.StatusUnprocessableEntity) },
	} {
		t.Run(name, func(t *testing.T) {
			var states [2][]state
			var answers [2]*httptest.ResponseRecorder
			for i, around := range [][]gin.HandlerFunc{nil, {paying(t)}} {
				r := newRouter()
				r.POST("/:account", append(append([]gin.HandlerFunc{func(c *gin.Context) {
					before := c.Writer
					c.Next()
					if c.Writer != before {
						t.Error("the writer was not put back")
					}
					states[i] = append(states[i], look(c), state{status: len(c.Errors)})
				}}, around...), func(c *gin.Context) {
					states[i] = append(states[i], look(c))
					do(c)
					states[i] = append(states[i], look(c))
				})...)
				answers[i] = pay(r)
			}
			for n, want := range states[0] {
				if got := states[1][n]; got != want {
					t.Errorf("state %d is %+v; with gin's own %+v", n, got, want)
				}
			}
			got, want := answers[1], answers[0]
			if got.Code != want.Code || got.Body.String() != want.Body.String() || got.Header().Get("Content-Type") != want.Header().Get("Content-Type") {
				t.Errorf("the answer is %d %v %q; with gin's own %d %v %q", got.Code, got.Header(), got.Body, want.Code, want.Header(), want.Body)
			}
		})
	}
}

func TestReplayEndsTheChain(t *testing.T) {
	r := newRouter()
	aborted, runs := false, 0
	r.POST("/:account", func(c *gin.Context) { c.Next(); aborted = c.IsAborted() }, paying(t),
		func(*gin.Context) { runs++ }, func(c *gin.Context) { runs++; c.String(http.StatusOK, "paid") })
	for _, replayed := range []bool{false, true} {
		if w := pay(r); w.Body.String() != "paid" || aborted != replayed || runs != 2 {
			t.Errorf("got %q, aborted %v after %d handlers; replayed: %v", w.Body, aborted, runs, replayed)
		}
	}
}

func TestRecoveryOutsideAnswersForAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRouter()
		r.Use(gin.RecoveryWithWriter(io.Discard))
		runs := 0
		r.POST("/:account", paying(t), func(c *gin.Context) {
			if runs++; runs == 1 {
				c.Header("X-Half", "1")
				c.String(http.StatusOK, "half")
				panic("boom")
			}
			c.String(http.StatusOK, "paid")
		})
		if w := pay(r); w.Code != http.StatusInternalServerError || w.Body.Len() > 0 || w.Header().Get("X-Half") != "" {
			t.Errorf("got %d %v %q", w.Code, w.Header(), w.Body)
		}
		time.Sleep(2 * time.Second)
		if w := pay(r); w.Code != http.StatusOK || w.Body.String() != "paid" {
			t.Errorf("got %d %q", w.Code, w.Body)
		}
	})
}

// A stream that is held back ends with its handler; c.Stream asks for CloseNotify.
func TestStreamIsSentAtItsEnd(t *testing.T) {
	r := newRouter()
	r.POST("/:account", paying(t), func(c *gin.Context) {
		n := 0
		c.Stream(func(w io.Writer) bool {
			n++
			_, _ = io.WriteString(w, "x")
			return n < 5
		})
	})
	for range 2 {
		if w := pay(r); w.Body.String() != "xxxxx" || w.Flushed {
			t.Errorf("got %q, flushed %v", w.Body, w.Flushed)
		}
	}
}

// What an earlier handler has bound is compared, and two bodies are refused.
func TestBodyThatWasBoundBeforeIsCompared(t *testing.T) {
	r := newRouter()
	r.POST("/:account", func(c *gin.Context) {
		var v any
		if err := c.ShouldBindBodyWithJSON(&v); err != nil {
			t.Error(err)
		}
	}, paying(t), func(c *gin.Context) {
		var v any
		if err := c.ShouldBindBodyWithJSON(&v); err != nil {
			t.Error(err)
		}
		c.JSON(http.StatusOK, v)
	})
	for _, tc := range []struct {
		body   string
		status int
	}{{`{"cents":1}`, 200}, {`{"cents":2}`, 422}, {`{"cents":1}`, 200}} {
		q := httptest.NewRequest(http.MethodPost, "/a", strings.NewReader(tc.body))
		q.Header.Set("Idempotency-Key", "k")
		w := httptest.NewRecorder()
		r.ServeHTTP(w, q)
		if w.Code != tc.status || tc.status == 200 && w.Body.String() != tc.body {
			t.Errorf("%s: got %d %s", tc.body, w.Code, w.Body)
		}
	}
}

func TestRouteWithoutItsParameterRunsNothing(t *testing.T) {
	r := newRouter()
	r.Use(paying(t))
	r.POST("/a", func(*gin.Context) { t.Error("the handler runs") })
	if w := pay(r); w.Code != http.StatusInternalServerError || !strings.Contains(w.Body.String(), "LOCK_POLICY") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	q := httptest.NewRequest(http.MethodPost, "/none/such", nil)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, q)
	if w.Code != http.StatusNotFound {
		t.Errorf("a path without a route gets %d", w.Code)
	}
}

func TestFormatsMeanNothingToIdempotent(t *testing.T) {
	e, _ := routetest.Open(t)
	h, err := NewIdempotent(e, core.Policy{Key: "k"}, idempotent.NewMemory(1), idempotent.Policy{Died: idempotent.Rerun}, WithFormats("json"))
	if h != nil || err == nil || !strings.Contains(err.Error(), "WithFormats has no effect") {
		t.Errorf("got %v", err)
	}
	if h, err := NewIdempotent(e, core.Policy{Key: "k"}, nil, idempotent.Policy{Died: idempotent.Rerun}); h != nil || !errors.Is(err, core.ErrPolicy) || !strings.Contains(err.Error(), "the store is nil") {
		t.Errorf("got %v", err)
	}
}

// lazy decides on the headers when the first byte of the body comes, as middleware that compresses does.
type lazy struct{ gin.ResponseWriter }

func (w lazy) Write(p []byte) (int, error) {
	if !w.Written() {
		w.Header().Del("Content-Encoding")
	}
	return w.ResponseWriter.Write(p)
}

func TestMiddlewareBeforeItMayDecideOnHeadersLate(t *testing.T) {
	r := newRouter()
	r.POST("/:account", func(c *gin.Context) {
		c.Header("Content-Encoding", "gzip")
		c.Writer = lazy{c.Writer}
	}, paying(t), func(c *gin.Context) { c.String(http.StatusOK, "paid") })
	for range 2 {
		if w := pay(r); w.Header().Get("Content-Encoding") != "" || w.Body.String() != "paid" {
			t.Errorf("got %v %q", w.Header(), w.Body)
		}
	}
}
