package httplock

import (
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
)

func TestAnswerAboutALostLeaseCanBeReadBesideCompression(t *testing.T) {
	e, _ := open(t)
	captureLog(t)
	lock := Lock(e, core.Policy{Key: "k", MaxHold: 10 * time.Millisecond})
	compressing := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			c := &compressed{w, z, false}
			next.ServeHTTP(c, r)
			if c.written {
				_ = z.Close()
			}
		})
	}
	wait := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for name, h := range map[string]http.Handler{"behind": lock(compressing(wait)), "before": compressing(lock(wait))} {
		t.Run(name, func(t *testing.T) { get(t, serve(t, h), "/").mustBe(t, 500, "LOCK_MAX_HOLD") })
	}
}

type compressed struct {
	http.ResponseWriter
	z       *gzip.Writer
	written bool
}

func (w *compressed) Write(p []byte) (int, error) {
	w.written = true
	return w.z.Write(p)
}

// What is refused because a route with a rule may be meant, or may be behind the one that
// the request has come by, is 400 if only this client can have written it so.
func TestRequestPastARuleIsRefusedAndNoOther(t *testing.T) {
	e, _ := open(t)
	for _, tc := range []struct {
		rule, other string // each other route has no rule, but is known
		by          string // the pattern that the request has come by
		path        string
		want        int
	}{
		{"/orders/{id}", "/*", "/*", "/orders/1", 500},
		{"/orders/{id}", "/*", "/*", "/other", 204},
		{"/orders/{id}", "/*", "/*", "//orders/1", 400},
		{"/orders/{id}", "/*", "/*", "/orders/./1", 400},
		{"/orders/{id}", "/*", "/*", "/%6frders/1", 400},
		{"/re/{id:[0-9]+}", "/*", "/*", "/re/7", 500},
		{"/re/{id:[0-9]+}", "/*", "/*", "/re/abc", 204},
		{"/re/{id:.+}", "/re/{id}/items", "/re/{id}/items", "/re/5/items", 204},
		{"/re/{id:[a-z0-9]+}", "/re/{id:[a-z]+}", "/re/{id:[a-z]+}", "/re/abc", 204},
		{"/a/{x}/c", "/a/b/{y}", "/a/*", "/a/z/c", 500},
		{"/a/b/{y}", "/a/{x}/c", "/a/*", "/a/b/z", 500},
		{"/a/b/{y}", "/a/{x}/c", "/a/*", "/a/z/c", 204},
		{"/s/{id}/", "/*", "/*", "/s/1", 204},
		{"/s/{id}/", "/*", "/*", "/s/1/", 500},
		{"/s/{id}/", "/*", "/*", "/s/1/2", 204},
		{"/s/{id}/", "/", "/", "/s/1/2", 500},
		{"example.com/pay", "/pay", "/pay", "/pay", 0},
	} {
		t.Run(tc.path+" by "+tc.by+" beside "+tc.rule, func(t *testing.T) {
			logged := captureLog(t)
			tab := table(t, e, map[string]string{tc.rule: "k"})
			if tc.want != 0 {
				if err := tab.Validate(tc.rule, tc.other); err != nil {
					t.Fatal(err)
				}
			}
			r := httptest.NewRequest(http.MethodPost, "http://example.com"+tc.path, nil)
			r.Pattern = tc.by
			w := httptest.NewRecorder()
			tab.Handler()(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if _, locked := core.LeaseFrom(r.Context()); locked {
					w.WriteHeader(http.StatusOK)
					return
				}
				w.WriteHeader(http.StatusNoContent)
			})).ServeHTTP(w, r)
			want := tc.want
			if want == 0 {
				want = http.StatusOK // a rule for a host, of which the router does not know
			}
			if w.Code != want {
				t.Errorf("got %d, want %d", w.Code, want)
			}
			if text := logged.String(); want < 500 && text != "" {
				t.Errorf("logged %s", text)
			}
		})
	}
}
