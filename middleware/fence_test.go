package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/httplock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

type guardFunc func(context.Context, fence.Token) error

func (f guardFunc) Admit(ctx context.Context, t fence.Token) error { return f(ctx, t) }

// tellToken answers with the number of the token of a product's lock, as c has it and
// as the request has it.
func tellToken(c *gin.Context) {
	key := "stock:" + core.Escape(c.Param("sku"))
	direct, _ := fence.For(c, key)
	token, err := fence.For(c.Request.Context(), key)
	c.String(http.StatusOK, "%d %d %v", direct.Number, token.Number, err)
}

func neverReached(t *testing.T) gin.HandlerFunc {
	return func(*gin.Context) { t.Error("the handler runs") }
}

func post(t testing.TB, s *httptest.Server, path string, tokens ...string) routetest.Answer {
	t.Helper()
	r := routetest.NewRequest(t, s, http.MethodPost, path, "")
	for _, v := range tokens {
		r.Header.Add("fencing-token", v)
	}
	return routetest.Send(t, s, r)
}

func TestRequestRunsUnderTheTokenOfItsOwnKeyOnly(t *testing.T) {
	r := newRouter()
	r.ContextWithFallback = false
	r.POST("/products/:sku", Fence(&fence.Memory{}, "stock:{path.sku}"), tellToken)
	s := routetest.Serve(t, r)
	for _, step := range []struct {
		path   string
		tokens []string
		status int
		code   string
		body   string
	}{
		{"/products/a", nil, 400, "LOCK_TOKEN_MISSING", ""},
		{"/products/a", []string{"stock%3Ab=9"}, 400, "LOCK_TOKEN_OTHER_KEY", ""},
		{"/products/a", []string{"stock:a=9"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{"/products/a", []string{"stock%3Aa=8", "stock%3Aa=9"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{"/products/a", []string{"stock%3Aa=9"}, 200, "", "9 9 <nil>"},
		{"/products/a", []string{"stock%3Ab=1, stock%3Aa=9"}, 200, "", "9 9 <nil>"},
		{"/products/a", []string{"stock%3Aa=8"}, 412, "LOCK_TOKEN_STALE", ""},
		{"/products/b", []string{"stock%3Aa=9", "stock%3Ab=1"}, 200, "", "1 1 <nil>"},
	} {
		a := post(t, s, step.path, step.tokens...)
		a.MustBe(t, step.status, step.code)
		if step.status == 200 && a.Body != step.body {
			t.Errorf("the handler of %s got %q; want %q", step.path, a.Body, step.body)
		}
		if step.status != 200 && (a.Header.Get("Content-Type") != "application/problem+json" || strings.Contains(a.Body, "stock")) {
			t.Errorf("got %v %s", a.Header, a.Body)
		}
	}
}

func TestTokenOfAClientsLeaseReachesTheHandler(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/products/:sku", Fence(&fence.Memory{}, "stock:{path.sku}"), tellToken)
	s := routetest.Serve(t, r)
	client := s.Client()
	client.Transport = httplock.SendTokens(client.Transport)
	err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, func(ctx context.Context) error {
		lease, _ := core.LeaseFrom(ctx)
		a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/products/a", "").WithContext(ctx))
		if want := fmt.Sprintf("%d %[1]d <nil>", lease.Token()); a.Body != want {
			t.Errorf("the handler got %q; want %q", a.Body, want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGuardThatFailsKeepsTheHandlersFromRunning(t *testing.T) {
	const secret = "10.0.0.7:6379"
	logged := logtest.Capture(t)
	r := newRouter()
	r.POST("/products/:sku", Fence(guardFunc(func(context.Context, fence.Token) error { return errors.New(secret) }), "stock:{path.sku}"), neverReached(t))
	s := routetest.Serve(t, r)
	a := post(t, s, "/products/a", "stock%3Aa=9")
	a.MustBe(t, 503, "LOCK_TOKEN_UNDECIDED")
	s.Close()
	if text := logged.String(); !strings.Contains(text, "LOCK_TOKEN_UNDECIDED") || strings.Contains(text+a.Body, secret) || strings.Contains(text, "stock:a") {
		t.Errorf("logged %s, answered %s", text, a.Body)
	}
}

func TestOptionsOfAFence(t *testing.T) {
	refused := make(chan error, 1)
	r := newRouter()
	r.Any("/", Fence(&fence.Memory{}, "order:{body.id}",
		WithBodyLimit(20),
		WithFilter(func(c *gin.Context) bool { return c.Request.Method != http.MethodGet }),
		WithErrorHandler(func(c *gin.Context, err error) {
			refused <- err
			c.Status(http.StatusTeapot)
		})), func(c *gin.Context) {
		raw, _ := c.GetRawData()
		c.String(http.StatusOK, "%s %v", raw, fence.All(c))
	})
	s := routetest.Serve(t, r)
	if a := routetest.Get(t, s, "/"); a.Status != 200 || a.Body != " []" {
		t.Errorf("what needs no check got %d %q", a.Status, a.Body)
	}
	for _, tc := range []struct {
		body, token, says string
		want              error
	}{
		{`{"id":7}`, "order%3A7=3", `{"id":7} [order%3A7=3]`, nil},
		{`{"id":7}`, "order%3A7=2", "", fence.ErrStale},
		{`{"id":8}`, "order%3A7=3", "", fence.ErrOtherKey},
		{`{}`, "order%3A7=3", "", core.ErrMissing},
		{`{"id":7,"more":"than 20 bytes"}`, "order%3A7=3", "", core.ErrTooLarge},
		{`{"id":7}`, "?", "", fence.ErrMalformed},
	} {
		a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", tc.body, "Content-Type", "application/json", fence.Header, tc.token))
		switch {
		case tc.want == nil && (a.Status != 200 || a.Body != tc.says):
			t.Errorf("%+v: got %d %q", tc, a.Status, a.Body)
		case tc.want != nil && a.Status != 418:
			t.Errorf("%+v: got %d %s", tc, a.Status, a.Body)
		case tc.want != nil:
			if err := <-refused; !errors.Is(err, tc.want) {
				t.Errorf("%+v: got %v", tc, err)
			}
		}
	}
}

func TestFenceThatCannotWorkIsRefused(t *testing.T) {
	for _, tc := range []struct {
		guard fence.Guard
		key   string
		o     []Option
		says  string
	}{
		{nil, "k", nil, "guard is nil"},
		{&fence.Memory{}, "", nil, "empty"},
		{&fence.Memory{}, "{cookie.x}", nil, "unknown"},
		{&fence.Memory{}, "k", []Option{WithoutBodyBuffer()}, "no effect"},
		{&fence.Memory{}, "k", []Option{WithBodyLimit(1)}, "no effect"},
	} {
		h, err := NewFence(tc.guard, tc.key, tc.o...)
		if err == nil || h != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%q: got %v; want an error about %q", tc.key, err, tc.says)
		}
		func() {
			defer func() {
				if got := recover(); fmt.Sprint(got) != fmt.Sprint(err) {
					t.Errorf("Fence panics with %v", got)
				}
			}()
			Fence(tc.guard, tc.key, tc.o...)
		}()
	}
}

func TestFenceOnARouteWithoutItsParameterRunsNothing(t *testing.T) {
	logtest.Capture(t)
	r := newRouter()
	r.POST("/products/:id", Fence(&fence.Memory{}, "stock:{path.sku}"), neverReached(t))
	post(t, routetest.Serve(t, r), "/products/a", "stock%3Aa=9").MustBe(t, 500, "LOCK_POLICY")
}

func TestReadTokensChecksNothingButTheirForm(t *testing.T) {
	r := newRouter()
	r.Use(func(c *gin.Context) {
		before := c.Request
		c.Next()
		if c.Request != before || len(fence.All(c)) > 0 {
			t.Error("the handlers before it see the tokens")
		}
	}, ReadTokens)
	r.POST("/", func(c *gin.Context) {
		values, _ := fence.Values(c)
		c.String(http.StatusOK, strings.Join(values, " "))
	})
	s := routetest.Serve(t, r)
	for _, tc := range []struct {
		values []string
		status int
		code   string
		body   string
	}{
		{nil, 200, "", ""},
		{[]string{"b=2", "a%3A1=1"}, 200, "", "b=2 a%3A1=1"},
		{[]string{"b=0"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{[]string{"b=2", "b=3"}, 400, "LOCK_TOKEN_MALFORMED", ""},
	} {
		a := post(t, s, "/", tc.values...)
		a.MustBe(t, tc.status, tc.code)
		if tc.status == 200 && a.Body != tc.body {
			t.Errorf("%q: the handler sees %q", tc.values, a.Body)
		}
	}
}
