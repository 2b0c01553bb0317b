package middleware

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/httplock"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// tellToken answers with the number of the token of a product's lock, as c has it and
// as the request has it.
func tellToken(c *gin.Context) {
	key := "stock:" + core.Escape(c.Param("sku"))
	direct, _ := fence.For(c, key)
	token, err := fence.For(c.Request.Context(), key)
	c.String(http.StatusOK, "%d %d %v", direct.Number, token.Number, err)
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
		a := routetest.Post(t, s, "/", tc.values...)
		a.MustBe(t, tc.status, tc.code)
		if tc.status == 200 && a.Body != tc.body {
			t.Errorf("%q: the handler sees %q", tc.values, a.Body)
		}
	}
}
