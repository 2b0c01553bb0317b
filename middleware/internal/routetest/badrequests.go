package routetest

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/lockaround/lockaround/core"
)

// wrongRequests asks with all that is not the request that has run, and not one of its own. Nothing of it runs, and no answer
// has the key.
func wrongRequests(t *testing.T, s Surface) {
	const route = "POST /accounts/{account}/payments"
	do := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "paid") }
	sh := openShop(t, s, do, func(w *Wrap) {
		w.Policy.Key = "pay:{account}:{header.Idempotency-Key}"
		w.BodyLimit = 64
		w.Values = map[string]func(*http.Request) (string, error){"account": func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") == "Bearer stolen" {
				return "", errors.New("10.0.0.7 knows no such account")
			}
			return r.Header.Get("Authorization"), nil
		}}
	})
	sh.handler = s.Mount(t,
		Route{Pattern: route, Around: []Wrap{sh.wrap}, Handler: sh.handled(do)},
		Route{Pattern: "PUT /accounts/{account}/payments", Around: []Wrap{sh.wrap}, Handler: sh.handled(do)},
		Route{Pattern: "POST /accounts/{account}/refunds", Around: []Wrap{sh.wrap}, Handler: sh.handled(do)},
	)
	type change = func(*http.Request)
	keys := func(lines ...string) change { return func(r *http.Request) { r.Header["Idempotency-Key"] = lines } }
	target := func(method, to string) change {
		return func(r *http.Request) {
			n := httptest.NewRequest(method, to, r.Body)
			n.Header = r.Header
			*r = *n
		}
	}
	body := func(from io.Reader, length int64) change {
		return func(r *http.Request) { r.Body, r.ContentLength = io.NopCloser(from), length }
	}
	text := func(s string) change { return body(strings.NewReader(s), int64(len(s))) }
	auth := func(lines ...string) change { return func(r *http.Request) { r.Header["Authorization"] = lines } }
	const bad, mismatch = "LOCK_KEY_INVALID", "IDEMPOTENCY_MISMATCH"
	over := strings.Repeat("x", 65)
	request := func(c change) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/accounts/a/payments?currency=eur", strings.NewReader(`{"cents":1}`))
		r.Header["Idempotency-Key"] = []string{"secret"}
		r.Header["Authorization"] = []string{"a"}
		if c != nil {
			c(r)
		}
		return r
	}
	sh.mustGet(sh.ask(request(nil)), 200, "paid", false)
	for _, tc := range []struct {
		name   string
		change change
		status int
		code   string
	}{
		{"no key", func(r *http.Request) { r.Header.Del("Idempotency-Key") }, 400, bad},
		{"a key in another header", func(r *http.Request) { r.Header = http.Header{"Authorization": {"a"}, "X-Idempotency-Key": {"secret"}} }, 400, bad},
		{"an empty key", keys(""), 400, bad},
		{"spaces alone", keys(" \t "), 400, bad},
		{"an empty string", keys(`""`), 400, bad},
		{"two lines", keys("secret", "secret2"), 400, bad},
		{"one line twice", keys("secret", "secret"), 400, bad},
		{"a list", keys("secret, secret2"), 400, bad},
		{"a list of strings", keys(`"secret", "secret2"`), 400, bad},
		{"a comma at the end", keys("secret,"), 400, bad},
		{"a parameter", keys(`"secret";v=1`), 400, bad},
		{"a bare parameter", keys("secret;v=1"), 400, bad},
		{"a space inside", keys("secret 2"), 400, bad},
		{"a tab inside", keys("\"secret\t2\""), 400, bad},
		{"a zero byte", keys("secret\x00"), 400, bad},
		{"a line feed", keys("secret\nX: y"), 400, bad},
		{"a control byte in quotes", keys("\"secret\x1f\""), 400, bad},
		{"DEL", keys("secret\x7f"), 400, bad},
		{"UTF-8", keys("secr\u00e9t"), 400, bad},
		{"UTF-8 in quotes", keys("\"secr\u00e9t\""), 400, bad},
		{"a byte that is no text", keys("secret\xff"), 400, bad},
		{"a quote that does not end", keys(`"secret`), 400, bad},
		{"a quote that does not begin", keys(`secret"`), 400, bad},
		{"a quote inside", keys(`"sec"ret"`), 400, bad},
		{"one quote alone", keys(`"`), 400, bad},
		{"a backslash", keys(`secret\`), 400, bad},
		{"an escape of nothing", keys(`"sec\ret"`), 400, bad},
		{"bytes behind the quote", keys(`"secret"x`), 400, bad},
		{"256 bytes", keys(strings.Repeat("s", 256)), 400, bad},
		{"256 bytes in quotes", keys(`"` + strings.Repeat("s", 256) + `"`), 400, bad},
		{"64 KiB", keys(strings.Repeat("s", 64<<10)), 400, bad},
		{"no account", auth(), 400, bad},
		{"an empty account", auth(""), 400, bad},
		{"an account that is none", auth("Bearer stolen"), 400, bad},
		{"another body", text(`{"cents":2}`), 422, mismatch},
		{"one byte more", text(`{"cents":1} `), 422, mismatch},
		{"one byte less", text(`{"cents":1`), 422, mismatch},
		{"the same JSON in other bytes", text(`{"cents":01}`), 422, mismatch},
		{"no body", text(""), 422, mismatch},
		{"another query", target("POST", "/accounts/a/payments?currency=usd"), 422, mismatch},
		{"no query", target("POST", "/accounts/a/payments"), 422, mismatch},
		{"one more in the query", target("POST", "/accounts/a/payments?currency=eur&currency=eur"), 422, mismatch},
		{"another spelling of the query", target("POST", "/accounts/a/payments?currency=e%75r"), 422, mismatch},
		{"another parameter of the path", target("POST", "/accounts/b/payments?currency=eur"), 422, mismatch},
		{"another spelling of the path", target("POST", "/accounts/%61/payments?currency=eur"), 422, mismatch},
		{"another method", target("PUT", "/accounts/a/payments?currency=eur"), 422, mismatch},
		{"another route", target("POST", "/accounts/a/refunds?currency=eur"), 422, mismatch},
		{"query and body moved", func(r *http.Request) {
			target("POST", "/accounts/a/payments?currency=eur%7B")(r)
			text(`"cents":1}`)(r)
		}, 422, mismatch},
		{"a body over the limit", text(over), 413, "BODY_TOO_LARGE"},
		{"a body over the limit, of unknown length", body(strings.NewReader(over), -1), 413, "BODY_TOO_LARGE"},
		{"a body longer than it says", body(strings.NewReader(over), 11), 413, "BODY_TOO_LARGE"},
		{"a body that breaks off", body(iotest.ErrReader(io.ErrUnexpectedEOF), 11), 400, "BODY_UNREADABLE"},
		{"a body that was consumed before", body(http.NoBody, 11), 400, bad},
	} {
		w := sh.ask(request(tc.change))
		if w.Code != tc.status || !strings.Contains(w.Body.String(), `"code":"`+tc.code+`"`) {
			t.Errorf("%s: got %d %s; want %d %s", tc.name, w.Code, w.Body, tc.status, tc.code)
		}
		if all := fmt.Sprint(w.Header(), w.Body); strings.Contains(all, "secr") || strings.Contains(all, "10.0.0.7") || strings.Contains(all, "ssss") || w.Header().Get("Retry-After") != "" {
			t.Errorf("%s: got %s", tc.name, all)
		}
		if n := sh.runs.Load(); n != 1 {
			t.Fatalf("%s: the handler has run %d times", tc.name, n)
		}
	}
	if w := sh.ask(request(keys())); !strings.Contains(w.Body.String(), `"placeholder":"header.Idempotency-Key"`) {
		t.Errorf("the answer does not name the header: %s", w.Body)
	}
	sh.mustGet(sh.ask(request(nil)), 200, "paid", true)
	sh.mustGet(sh.ask(request(auth("b"))), 200, "paid", false)
	sh.mustGet(sh.ask(request(keys(strings.Repeat("s", 255)))), 200, "paid", false)
	sh.mustGet(sh.ask(request(keys(`"a \"quoted\\ key"`))), 200, "paid", false)
}

// faultsOfRegistration has what cannot work, and what the error says of it.
func faultsOfRegistration(t *testing.T, s Surface) {
	for _, tc := range []struct {
		name, says string
		change     func(*Wrap)
	}{
		{"the client's choice alone", "add what names the caller, such as {value.account}", func(w *Wrap) { w.Policy.Key = "pay:{header.Idempotency-Key}" }},
		{"the same in another case", "or set AnyCaller", func(w *Wrap) { w.Policy.Key = "pay:{header.idempotency-key}:{header.IDEMPOTENCY-KEY:lower}" }},
		{"no engine", "engine is nil", func(w *Wrap) { w.Engine = nil }},
		{"no word of runs that died", "Policy.Died is not set", func(w *Wrap) { w.Once.Died = 0 }},
		{"too short a time", "Policy.Keep is 1s", func(w *Wrap) { w.Once.Keep = 1e9 }},
		{"several keys", "has several Keys", func(w *Wrap) { w.Policy.Key, w.Policy.Keys = "", []string{"a:{path.account}", "b:{path.account}"} }},
		{"shared", "needs exclusive", func(w *Wrap) { w.Policy.Mode = core.Shared }},
		{"a cookie", `WithReplayedHeaders("set-cookie")`, func(w *Wrap) { w.Replayed = []string{"X-Order", "set-cookie"} }},
		{"of the connection", `WithReplayedHeaders("Connection")`, func(w *Wrap) { w.Replayed = []string{"Connection"} }},
		{"its length", `WithReplayedHeaders("Content-Length")`, func(w *Wrap) { w.Replayed = []string{"Content-Length"} }},
		{"the mark of a replay", `WithReplayedHeaders("Idempotent-Replayed")`, func(w *Wrap) { w.Replayed = []string{"Idempotent-Replayed"} }},
		{"no name", "cannot be the name of a header", func(w *Wrap) { w.Replayed = []string{"X Order"} }},
		{"none", "names no header", func(w *Wrap) { w.Replayed = []string{} }},
		{"one by default", "is replayed already", func(w *Wrap) { w.Replayed = []string{"etag"} }},
		{"one twice", "is replayed already", func(w *Wrap) { w.Replayed = []string{"X-A", "x-a"} }},
		{"no buffer", "WithoutBodyBuffer is given, but the whole body is read", func(w *Wrap) { w.Unbuffered = true }},
		{"an unused value", "WithValue is given for {tenant}", func(w *Wrap) {
			w.Values = map[string]func(*http.Request) (string, error){"tenant": func(*http.Request) (string, error) { return "", nil }}
		}},
		{"a header for a lock", "WithReplayedHeaders has no effect", func(w *Wrap) { w.Store, w.Replayed = nil, []string{"X-A"} }},
		{"kept by a lock", "WithKept has no effect", func(w *Wrap) { w.Store, w.Kept = nil, func(int) bool { return true } }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			defer func() {
				if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("got %v; want %q", err, tc.says)
				}
			}()
			openShop(t, s, nil, tc.change)
		})
	}
	for _, allowed := range []func(*Wrap){
		func(w *Wrap) { w.Policy.Key, w.Once.AnyCaller = "pay:{header.Idempotency-Key}", true },
		func(w *Wrap) { w.Policy.Key = "pay:{path.account}" }, // a natural key
		func(w *Wrap) { w.Policy.Key = "pay:{header.X-Request-Id}" },
		func(w *Wrap) { w.Policy.Key = "nightly" },
	} {
		openShop(t, s, nil, allowed)
	}
}
