package routetest

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

// again are the statuses at which clients and proxies send a request again, and do so with a POST
// too if they are told to: at these the server says that it has not worked on the request.
var again = []int{
	http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// insist posts as a client does that repeats what it may: at those statuses, and after any
// Retry-After, so many times in all.
func insist(t testing.TB, srv *httptest.Server, path string, most int) (a Answer, sent int) {
	t.Helper()
	for sent = 1; ; sent++ {
		a = Post(t, srv, path)
		if sent == most || !slices.Contains(again, a.Status) && a.Header.Get("Retry-After") == "" {
			return a, sent
		}
	}
}

func notSentAgain(t *testing.T, s Surface) {
	logtest.Capture(t)
	expire := func(d *memlock.Driver, r *http.Request) {
		d.Expire("test/k")
		<-r.Context().Done()
	}
	for name, tc := range map[string]struct {
		policy  core.Policy
		handler func(*core.Engine, *memlock.Driver, http.ResponseWriter, *http.Request)
		code    string
	}{
		"lost": {handler: func(_ *core.Engine, d *memlock.Driver, _ http.ResponseWriter, r *http.Request) { expire(d, r) }, code: "LOCK_LOST"},
		"held too long": {
			policy:  core.Policy{MaxHold: time.Millisecond},
			handler: func(_ *core.Engine, _ *memlock.Driver, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			code:    "LOCK_MAX_HOLD",
		},
		"closed": {handler: func(e *core.Engine, _ *memlock.Driver, _ http.ResponseWriter, r *http.Request) {
			_ = e.Close()
			<-r.Context().Done()
		}, code: "LOCK_CLOSED"},
		"lost, when the handler was about to answer": {handler: func(_ *core.Engine, d *memlock.Driver, w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Retry-After", "1")
			expire(d, r)
		}, code: "LOCK_LOST"},
	} {
		t.Run(name, func(t *testing.T) {
			e, d := Open(t)
			var runs atomic.Int32
			p := tc.policy
			p.Key = "k"
			srv := Serve(t, s.one(t, "POST /", func(w http.ResponseWriter, r *http.Request) {
				if runs.Add(1) == 1 {
					tc.handler(e, d, w, r)
				}
			}, Wrap{Engine: e, Policy: p}))
			a, sent := insist(t, srv, "/", 4)
			a.MustBe(t, 500, tc.code)
			if runs.Load() != 1 || sent != 1 || a.Header.Get("Retry-After") != "" {
				t.Errorf("%d runs of %d requests, Retry-After %q; want one", runs.Load(), sent, a.Header.Get("Retry-After"))
			}
		})
	}
}

func sentAgain(t *testing.T, s Surface) {
	for name, tc := range map[string]struct {
		policy core.Policy
		block  func(testing.TB, *core.Engine, *memlock.Driver) (unblock func())
	}{
		"busy":    {block: func(t testing.TB, e *core.Engine, _ *memlock.Driver) func() { return Hold(t, e, "k") }},
		"timeout": {policy: core.Policy{Wait: time.Millisecond}, block: func(t testing.TB, e *core.Engine, _ *memlock.Driver) func() { return Hold(t, e, "k") }},
		"store down": {block: func(_ testing.TB, _ *core.Engine, d *memlock.Driver) func() {
			d.Fail(errors.New("down"))
			return d.Heal
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e, d := Open(t)
			unblock := tc.block(t, e, d)
			var runs, asked atomic.Int32
			p := tc.policy
			p.Key = "k"
			locked := s.one(t, "POST /", func(http.ResponseWriter, *http.Request) { runs.Add(1) }, Wrap{Engine: e, Policy: p})
			srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) == 2 {
					unblock()
				}
				locked.ServeHTTP(w, r)
			}))
			a, sent := insist(t, srv, "/", 1000) // a busy machine may let a wait of 1 ms run out again
			if a.Status != 200 || runs.Load() != 1 || sent < 2 {
				t.Errorf("got %d %s, %d runs of %d requests; want a run of two or more", a.Status, a.Body, runs.Load(), sent)
			}
		})
	}
}
