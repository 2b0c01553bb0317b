package httplock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// guardFunc is a guard that is a function.
type guardFunc func(context.Context, fence.Token) error

func (f guardFunc) Admit(ctx context.Context, t fence.Token) error { return f(ctx, t) }

// tellToken answers with the number of the token of a product's lock.
var tellToken = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	token, err := fence.For(r.Context(), "stock:"+core.Escape(r.PathValue("sku")))
	_, _ = fmt.Fprint(w, token.Number)
	if err != nil {
		_, _ = fmt.Fprint(w, err)
	}
})

// guarded serves products behind g.
func guarded(t testing.TB, g fence.Guard, o ...Option) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}", Fence(g, "stock:{path.sku}", o...)(tellToken))
	return routetest.Serve(t, mux)
}

// post asks for a product with these values of the header.
func post(t testing.TB, s *httptest.Server, path string, tokens ...string) routetest.Answer {
	t.Helper()
	r := routetest.NewRequest(t, s, http.MethodPost, path, "")
	for _, v := range tokens {
		r.Header.Add("fencing-token", v)
	}
	return routetest.Send(t, s, r)
}

func TestRequestRunsUnderTheTokenOfItsOwnKeyOnly(t *testing.T) {
	s := guarded(t, &fence.Memory{})
	for _, step := range []struct {
		path   string
		tokens []string
		status int
		code   string
		body   string
	}{
		{"/products/a", nil, 400, "LOCK_TOKEN_MISSING", ""},
		{"/products/a", []string{""}, 400, "LOCK_TOKEN_MISSING", ""},
		{"/products/a", []string{"stock%3Ab=9"}, 400, "LOCK_TOKEN_OTHER_KEY", ""},
		{"/products/a", []string{"stock:a=9"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{"/products/a", []string{"stock%3Aa=9", "x"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{"/products/a", []string{"stock%3Aa=8", "stock%3Aa=9"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{"/products/a", []string{"stock%3Aa=9"}, 200, "", "9"},
		{"/products/a", []string{"stock%3Ab=1, stock%3Aa=9"}, 200, "", "9"},
		{"/products/a", []string{"stock%3Aa=8"}, 412, "LOCK_TOKEN_STALE", ""},
		{"/products/b", []string{"stock%3Aa=9", "stock%3Ab=1"}, 200, "", "1"},
		{"/products/a%2Fb", []string{"stock%3Aa%252Fb=1"}, 200, "", "1"},
		{"/products/a", []string{"stock%3Aa=9223372036854775807"}, 200, "", "9223372036854775807"},
		{"/products/a", []string{"stock%3Aa=9223372036854775806"}, 412, "LOCK_TOKEN_STALE", ""},
	} {
		a := post(t, s, step.path, step.tokens...)
		a.MustBe(t, step.status, step.code)
		if step.status == 200 && a.Body != step.body {
			t.Errorf("the handler of %s got %q; want %q", step.path, a.Body, step.body)
		}
		if step.status != 200 && (a.Header.Get("Content-Type") != "application/problem+json" || a.Header.Get("Retry-After") != "" || strings.Contains(a.Body, "stock")) {
			t.Errorf("got %v %s", a.Header, a.Body)
		}
	}
}

func TestHolderThatWasOvertakenIsRefusedOverHTTP(t *testing.T) {
	e, d := routetest.Open(t)
	s := guarded(t, &fence.Memory{})
	client := &http.Client{Transport: SendTokens(s.Client().Transport)}
	deduct := func(ctx context.Context) (status int) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/products/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		return res.StatusCode
	}
	var late []fence.Token
	under := func(ctx context.Context) error {
		if status := deduct(ctx); status != 200 {
			t.Errorf("the holder got %d", status)
		}
		late = fence.All(ctx)
		return nil
	}
	if err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, under); err != nil {
		t.Fatal(err)
	}
	first := late
	if err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, under); err != nil {
		t.Fatal(err)
	}
	if status := deduct(fence.NewContext(t.Context(), first...)); status != 412 {
		t.Errorf("the holder that was overtaken got %d; want 412", status)
	}
	err := e.Do(t.Context(), core.Policy{Key: "stock:a"}, func(ctx context.Context) error {
		d.Expire("test/stock:a")
		if status := deduct(context.WithoutCancel(ctx)); status != 400 {
			t.Errorf("a holder whose lease is over got %d; want 400", status)
		}
		return nil
	})
	if !errors.Is(err, core.ErrLost) {
		t.Errorf("got %v", err)
	}
}

func TestGuardThatFailsKeepsTheHandlerFromRunning(t *testing.T) {
	const secret = "10.0.0.7:6379"
	logged := logtest.Capture(t)
	mux := http.NewServeMux()
	mux.Handle("POST /products/{sku}", Fence(guardFunc(func(context.Context, fence.Token) error {
		return fmt.Errorf("dial %s: %w", secret, context.DeadlineExceeded)
	}), "stock:{path.sku}")(routetest.Never(t)))
	s := routetest.Serve(t, mux)
	a := post(t, s, "/products/a", "stock%3Aa=9")
	a.MustBe(t, 503, "LOCK_TOKEN_UNDECIDED")
	s.Close()
	if text := logged.String(); !strings.Contains(text, "LOCK_TOKEN_UNDECIDED") || strings.Contains(text+a.Body, secret) || strings.Contains(text, "stock:a") {
		t.Errorf("logged %s, answered %s", text, a.Body)
	}
}

func TestCancelledRequestIsNotRefusedForTheGuard(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	h := Fence(guardFunc(func(ctx context.Context, _ fence.Token) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}), "k")(routetest.Never(t))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
	r.Header.Set(fence.Header, "k=1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 499 || w.Body.Len() > 0 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestOptionsOfAFence(t *testing.T) {
	refused := make(chan error, 1)
	mux := http.NewServeMux()
	mux.Handle("/{any}", Fence(&fence.Memory{}, "order:{body.id}:{tenant}",
		WithBodyLimit(20),
		WithValue("tenant", func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil }),
		WithFilter(func(r *http.Request) bool { return r.Method != http.MethodGet }),
		WithErrorHandler(func(w http.ResponseWriter, _ *http.Request, err error) {
			refused <- err
			w.WriteHeader(http.StatusTeapot)
		}))(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		_, _ = fmt.Fprintf(w, "%s %v", body[:n], fence.All(r.Context()))
	})))
	s := routetest.Serve(t, mux)
	request := func(body, tenant, token string) routetest.Answer {
		t.Helper()
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/x", body, "Content-Type", "application/json", "X-Tenant", tenant, fence.Header, token))
	}
	if a := routetest.Get(t, s, "/x"); a.Status != 200 || a.Body != " []" {
		t.Errorf("what needs no check got %d %q", a.Status, a.Body)
	}
	if a := request(`{"id":7}`, "t", "order%3A7%3At=3"); a.Status != 200 || a.Body != `{"id":7} [order%3A7%3At=3]` {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	for _, tc := range []struct {
		body, tenant, token string
		want                error
	}{
		{`{"id":7}`, "t", "order%3A7%3At=2", fence.ErrStale},
		{`{"id":7}`, "", "order%3A7%3At=3", core.ErrMissing},
		{`{"id":7,"more":"than 20 bytes"}`, "t", "order%3A7%3At=3", core.ErrTooLarge},
		{`{"id":7}`, "t", "?", fence.ErrMalformed},
	} {
		if a := request(tc.body, tc.tenant, tc.token); a.Status != 418 {
			t.Errorf("%+v: got %d %s", tc, a.Status, a.Body)
			continue
		}
		if err := <-refused; !errors.Is(err, tc.want) {
			t.Errorf("%+v: got %v", tc, err)
		}
	}
}

func TestFenceLeavesBodiesThatItDoesNotNeedUnread(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("body"))
	r.Header.Set(fence.Header, "k=1")
	before := r.Body
	Fence(&fence.Memory{}, "k")(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Body != before {
			t.Error("the body was read ahead")
		}
	})).ServeHTTP(httptest.NewRecorder(), r)
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
		{&fence.Memory{}, "{path.sku", nil, "never closed"},
		{&fence.Memory{}, "{cookie.x}", nil, "unknown"},
		{&fence.Memory{}, "k", []Option{WithoutBodyBuffer()}, "no effect"},
		{&fence.Memory{}, "k", []Option{WithBodyLimit(1)}, "no effect"},
		{&fence.Memory{}, "k", []Option{WithBodyLimit(0)}, "WithBodyLimit(0)"},
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

func TestFenceOnARouteWithoutItsWildcardRunsNothing(t *testing.T) {
	logtest.Capture(t)
	mux := http.NewServeMux()
	mux.Handle("POST /products/{id}", Fence(&fence.Memory{}, "stock:{path.sku}")(routetest.Never(t)))
	s := routetest.Serve(t, mux)
	post(t, s, "/products/a", "stock%3Aa=9").MustBe(t, 500, "LOCK_POLICY")
}

func TestLeaseOfTheServerIsNoTokenOfItsClient(t *testing.T) {
	e, _ := routetest.Open(t)
	s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(Fence(&fence.Memory{}, "k")(routetest.Never(t))))
	post(t, s, "/").MustBe(t, 400, "LOCK_TOKEN_MISSING")
}
