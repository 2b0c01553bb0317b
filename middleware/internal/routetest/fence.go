package routetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/fence"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

// guardFunc is a guard that is a function.
type guardFunc func(context.Context, fence.Token) error

func (f guardFunc) Admit(ctx context.Context, t fence.Token) error { return f(ctx, t) }

// TellToken is a handler that answers with the number of the token of a product's lock.
func TellToken(w http.ResponseWriter, r *http.Request) {
	token, err := fence.For(r.Context(), "stock:"+core.Escape(r.PathValue("sku")))
	_, _ = fmt.Fprint(w, token.Number)
	if err != nil {
		_, _ = fmt.Fprint(w, err)
	}
}

// guarding is a fence for a key.
func guarding(g fence.Guard, key string) Wrap {
	return Wrap{Guard: g, Policy: core.Policy{Key: key}}
}

func tokenOfItsOwnKey(t *testing.T, s Surface) {
	srv := Serve(t, s.one(t, "POST /products/{sku}", TellToken, guarding(&fence.Memory{}, "stock:{path.sku}")))
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
		{"/products/a:b", []string{"stock%3Aa%253Ab=1"}, 200, "", "1"},
		{"/products/a", []string{"stock%3Aa=9223372036854775807"}, 200, "", "9223372036854775807"},
		{"/products/a", []string{"stock%3Aa=9223372036854775806"}, 412, "LOCK_TOKEN_STALE", ""},
	} {
		a := Post(t, srv, step.path, step.tokens...)
		a.MustBe(t, step.status, step.code)
		if step.status == 200 && a.Body != step.body {
			t.Errorf("the handler of %s got %q; want %q", step.path, a.Body, step.body)
		}
		if step.status != 200 && (a.Header.Get("Content-Type") != "application/problem+json" || a.Header.Get("Retry-After") != "" || strings.Contains(a.Body, "stock")) {
			t.Errorf("got %v %s", a.Header, a.Body)
		}
	}
}

func failingGuard(t *testing.T, s Surface) {
	const secret = "10.0.0.7:6379"
	for name, err := range map[string]error{
		"an error":   errors.New(secret),
		"a deadline": fmt.Errorf("dial %s: %w", secret, context.DeadlineExceeded),
	} {
		t.Run(name, func(t *testing.T) {
			logged := logtest.Capture(t)
			srv := Serve(t, s.one(t, "POST /products/{sku}", Never(t),
				guarding(guardFunc(func(context.Context, fence.Token) error { return err }), "stock:{path.sku}")))
			a := Post(t, srv, "/products/a", "stock%3Aa=9")
			a.MustBe(t, 503, "LOCK_TOKEN_UNDECIDED")
			srv.Close()
			if text := logged.String(); !strings.Contains(text, "LOCK_TOKEN_UNDECIDED") || strings.Contains(text+a.Body, secret) || strings.Contains(text, "stock:a") {
				t.Errorf("logged %s, answered %s", text, a.Body)
			}
		})
	}
}

func cancelledAtTheGuard(t *testing.T, s Surface) {
	ctx, cancel := context.WithCancel(t.Context())
	h := s.one(t, "POST /", Never(t), guarding(guardFunc(func(ctx context.Context, _ fence.Token) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}), "k"))
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
	r.Header.Set(fence.Header, "k=1")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != 499 || w.Body.Len() > 0 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func optionsOfAFence(t *testing.T, s Surface) {
	refused := make(chan error, 1)
	f := guarding(&fence.Memory{}, "order:{body.id}:{tenant}")
	f.BodyLimit = 20
	f.Values = map[string]func(*http.Request) (string, error){
		"tenant": func(r *http.Request) (string, error) { return r.Header.Get("X-Tenant"), nil },
	}
	f.Filter = func(r *http.Request) bool { return r.Method != http.MethodGet }
	f.OnError = func(w http.ResponseWriter, _ *http.Request, err error) {
		refused <- err
		w.WriteHeader(http.StatusTeapot)
	}
	srv := Serve(t, s.one(t, "/{any}", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, fence.All(r.Context()))
	}, f))
	if a := Get(t, srv, "/x"); a.Status != 200 || a.Body != " []" {
		t.Errorf("what needs no check got %d %q", a.Status, a.Body)
	}
	for _, tc := range []struct {
		body, tenant, token, says string
		want                      error
	}{
		{`{"id":7}`, "t", "order%3A7%3At=3", `{"id":7} [order%3A7%3At=3]`, nil},
		{`{"id":7}`, "t", "order%3A7%3At=2", "", fence.ErrStale},
		{`{"id":8}`, "t", "order%3A7%3At=3", "", fence.ErrOtherKey},
		{`{}`, "t", "order%3A7%3At=3", "", core.ErrMissing},
		{`{"id":7}`, "", "order%3A7%3At=3", "", core.ErrMissing},
		{`{"id":7,"more":"than 20 bytes"}`, "t", "order%3A7%3At=3", "", core.ErrTooLarge},
		{`{"id":7}`, "t", "?", "", fence.ErrMalformed},
	} {
		a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/x", tc.body, "Content-Type", "application/json", "X-Tenant", tc.tenant, fence.Header, tc.token))
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

func fenceWithoutParameter(t *testing.T, s Surface) {
	logtest.Capture(t)
	srv := Serve(t, s.one(t, "POST /products/{id}", Never(t), guarding(&fence.Memory{}, "stock:{path.sku}")))
	Post(t, srv, "/products/a", "stock%3Aa=9").MustBe(t, 500, "LOCK_POLICY")
}

func fenceLeavesBodies(t *testing.T, s Surface) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("body"))
	r.Header.Set(fence.Header, "k=1")
	before := r.Body
	ran := false
	s.one(t, "POST /", func(_ http.ResponseWriter, r *http.Request) {
		ran = true
		if r.Body != before {
			t.Error("the body was read ahead")
		}
	}, guarding(&fence.Memory{}, "k")).ServeHTTP(httptest.NewRecorder(), r)
	if !ran {
		t.Error("the handler does not run")
	}
}

func leaseIsNoToken(t *testing.T, s Surface) {
	e, _ := Open(t)
	srv := Serve(t, s.one(t, "POST /", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: "k"}}, guarding(&fence.Memory{}, "k")))
	Post(t, srv, "/").MustBe(t, 400, "LOCK_TOKEN_MISSING")
}

func readTokensCheckTheirForm(t *testing.T, s Surface) {
	srv := Serve(t, s.one(t, "/", func(w http.ResponseWriter, r *http.Request) {
		values, _ := fence.Values(r.Context())
		_, _ = io.WriteString(w, strings.Join(values, " "))
	}, Wrap{Tokens: true}))
	for _, tc := range []struct {
		values []string
		status int
		code   string
		body   string
	}{
		{nil, 200, "", ""},
		{[]string{"b=2", "a%3A1=1"}, 200, "", "b=2 a%3A1=1"},
		{[]string{"b=0"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{[]string{"b=2", "b=2"}, 400, "LOCK_TOKEN_MALFORMED", ""},
		{[]string{"b=2", "b=3"}, 400, "LOCK_TOKEN_MALFORMED", ""},
	} {
		a := Post(t, srv, "/", tc.values...)
		a.MustBe(t, tc.status, tc.code)
		if tc.status == 200 && a.Body != tc.body {
			t.Errorf("%q: the handler sees %q", tc.values, a.Body)
		}
	}
	if a := Send(t, srv, NewRequest(t, srv, http.MethodHead, "/", "", fence.Header, "?")); a.Status != 400 || a.Body != "" {
		t.Errorf("HEAD got %d %q", a.Status, a.Body)
	}
}

func holdersRequest(t *testing.T, s Surface) {
	e, store := Open(t)
	other, err := core.New(store, core.WithNamespace("test"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p := core.Policy{Key: "order:7", Wait: core.Forever}
	ran := 0
	srv := Serve(t, s.one(t, "POST /", func(http.ResponseWriter, *http.Request) { ran++ }, Wrap{Tokens: true}, Wrap{Engine: e, Policy: p}))
	for _, holder := range []*core.Engine{e, other} { // in this process, and as if in another one
		err = holder.Do(t.Context(), p, func(ctx context.Context) error {
			values, err := fence.Values(ctx)
			Post(t, srv, "/", values...).MustBe(t, 500, "LOCK_DEADLOCK")
			return err
		})
		if err != nil || ran != 0 {
			t.Errorf("the holder got %v, and the handler ran %d times", err, ran)
		}
	}
}
