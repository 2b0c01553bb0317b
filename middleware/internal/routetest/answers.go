package routetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

// answerBesideCompression lets the client ask for gzip and read it.
func answerBesideCompression(t *testing.T, s Surface) {
	e, _ := Open(t)
	logtest.Capture(t)
	lock := Wrap{Engine: e, Policy: core.Policy{Key: "k", MaxHold: 10 * time.Millisecond}}
	wait := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	srv := Serve(t, s.Mount(t,
		Route{Pattern: "GET /behind", Around: []Wrap{lock, {Gzip: true}}, Handler: wait},
		Route{Pattern: "GET /before", Around: []Wrap{{Gzip: true}, lock}, Handler: wait},
	))
	for _, path := range []string{"/behind", "/before"} {
		Get(t, srv, path).MustBe(t, 500, "LOCK_MAX_HOLD")
	}
}

func bodyLeftUnread(t *testing.T, s Surface) {
	e, _ := Open(t)
	var before io.ReadCloser
	router := s.one(t, "POST /", func(w http.ResponseWriter, r *http.Request) {
		if r.Body != before {
			t.Error("the body was replaced")
		}
		body, err := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %v", body, err)
	}, Wrap{Engine: e, Policy: core.Policy{Key: "k"}, Unbuffered: true})
	srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before = r.Body
		router.ServeHTTP(w, r)
	}))
	if a := Send(t, srv, NewRequest(t, srv, http.MethodPost, "/", "text")); a.Status != 200 || a.Body != "text <nil>" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
}

func errorHandlerAnswers(t *testing.T, s Surface) {
	e, d := Open(t)
	type call struct {
		err      error
		answered bool
	}
	calls := make(chan call, 1)
	lock := func(p core.Policy) Wrap {
		return Wrap{Engine: e, Policy: p, OnError: func(w http.ResponseWriter, r *http.Request, err error) {
			answered := s.Answered(w)
			calls <- call{err, answered}
			if _, ok := core.LeaseFrom(r.Context()); ok {
				t.Error("the request is the handler's")
			}
			if !answered {
				w.WriteHeader(http.StatusTeapot)
				_, _ = io.WriteString(w, "own")
			}
		}}
	}
	wait := func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	expire := func(w http.ResponseWriter, r *http.Request) {
		d.Expire("test/k")
		wait(w, r)
	}
	router := s.Mount(t,
		Route{Pattern: "GET /key", Around: []Wrap{lock(core.Policy{Key: "{query.x}"})}, Handler: Never(t)},
		Route{Pattern: "GET /busy", Around: []Wrap{lock(core.Policy{Key: "busy"})}, Handler: Never(t)},
		Route{Pattern: "POST /body", Around: []Wrap{lock(core.Policy{Key: "k"})}, Handler: Never(t)},
		Route{Pattern: "GET /hold", Around: []Wrap{lock(core.Policy{Key: "k", MaxHold: 10 * time.Millisecond})}, Handler: wait},
		Route{Pattern: "GET /silent", Around: []Wrap{lock(core.Policy{Key: "k"})}, Handler: expire},
		Route{Pattern: "GET /answers", Around: []Wrap{lock(core.Policy{Key: "k"})}, Handler: func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusAccepted)
			_, _ = io.WriteString(w, "mine")
			expire(w, r)
		}},
	)
	srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			r.Body = http.MaxBytesReader(w, r.Body, 1)
		}
		router.ServeHTTP(w, r)
	}))
	defer Hold(t, e, "busy")()
	kinds := []error{core.ErrKey, core.ErrBusy, s.ErrBody, core.ErrMaxHold, core.ErrLost}
	for _, tc := range []struct {
		method, path, body string
		want               error
		status             int
		says               string
		answered           bool
	}{
		{method: "GET", path: "/key", want: core.ErrKey, status: 418, says: "own"},
		{method: "GET", path: "/busy", want: core.ErrBusy, status: 418, says: "own"},
		{method: "POST", path: "/body", body: "long", want: s.ErrBody, status: 418, says: "own"},
		{method: "GET", path: "/hold", want: core.ErrMaxHold, status: 418, says: "own"},
		{method: "GET", path: "/silent", want: core.ErrLost, status: 418, says: "own"},
		{method: "GET", path: "/answers", want: core.ErrLost, status: 202, says: "mine", answered: true},
	} {
		a := Send(t, srv, NewRequest(t, srv, tc.method, tc.path, tc.body))
		if a.Status != tc.status || a.Body != tc.says {
			t.Errorf("%s: got %d %q; want %d %q", tc.path, a.Status, a.Body, tc.status, tc.says)
		}
		c := <-calls
		for _, kind := range kinds {
			if errors.Is(c.err, kind) != (kind == tc.want) {
				t.Errorf("%s: called with %v; want %v", tc.path, c.err, tc.want)
			}
		}
		if c.answered != tc.answered {
			t.Errorf("%s: answered is %v", tc.path, c.answered)
		}
	}
}

// Answering returns the handler of a request as a package's users write it: handle, which
// answers with the package's Answer for a lock that it took by itself. begun says that handle
// will have begun the answer before.
type Answering func(t testing.TB, begun bool, handle func(w http.ResponseWriter, answer func(error) bool)) http.Handler

// Test tests that the answers are those of a route's lock.
func (a Answering) Test(t *testing.T) {
	const secret = "10.0.0.7 said secret"
	of := func(op string, kind error) error {
		return &core.Error{Op: op, Policy: "p", Kind: kind, Cause: errors.New(secret)}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name     string
		ctx      context.Context
		err      error
		begun    bool
		answered bool
		status   int
		says     string
		logs     string
	}{
		{"nil", t.Context(), nil, false, false, 200, "own", ""},
		{"another error", t.Context(), errors.New("sold out"), false, false, 200, "own", ""},
		{"busy", t.Context(), of("acquire", core.ErrBusy), false, true, 409, `"code":"LOCK_BUSY"`, ""},
		{"policy", t.Context(), of("compile", core.ErrPolicy), false, true, 500, `"code":"LOCK_POLICY"`, "error.type=LOCK_POLICY"},
		{"lost", t.Context(), of("release", core.ErrLost), false, true, 500, `"code":"LOCK_LOST"`, ""},
		{"lost after the answer", t.Context(), of("release", core.ErrLost), true, true, 201, "begun", "although its lock had ended"},
		{"busy after the answer", t.Context(), of("acquire", core.ErrBusy), true, true, 201, "begun", ""},
		{"client gone", gone, of("acquire", context.Canceled), false, true, 499, "", ""},
		{"client gone in a check", gone, of("check", context.Canceled), false, true, 500, `"code":"LOCK_FAILED"`, "error.type=LOCK_FAILED"},
		{"work cancelled in a release", t.Context(), of("release", context.Canceled), false, true, 500, `"code":"LOCK_FAILED"`, "error.type=LOCK_FAILED"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logged := logtest.Capture(t)
			w := httptest.NewRecorder()
			a(t, tc.begun, func(w http.ResponseWriter, answer func(error) bool) {
				w.Header().Set("Content-Length", "100")
				if tc.begun {
					w.Header().Set("Content-Length", "5")
					w.WriteHeader(http.StatusCreated)
					_, _ = io.WriteString(w, "begun")
				}
				if got := answer(tc.err); got != tc.answered {
					t.Errorf("Answer reports %v", got)
				} else if !got {
					w.Header().Set("Content-Length", "3")
					_, _ = io.WriteString(w, "own")
				}
			}).ServeHTTP(w, httptest.NewRequestWithContext(tc.ctx, http.MethodGet, "/", nil))
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) || tc.begun && w.Body.String() != "begun" {
				t.Errorf("got %d %s; want %d %s", w.Code, w.Body, tc.status, tc.says)
			}
			if tc.answered && !tc.begun && w.Header().Get("Content-Length") != "" {
				t.Error("the length of another answer is left")
			}
			if strings.Contains(w.Body.String()+logged.String(), "secret") {
				t.Errorf("what the store said is told: %s %s", w.Body, logged)
			}
			if text := logged.String(); !strings.Contains(text, tc.logs) || tc.logs == "" && text != "" {
				t.Errorf("logged %q; want %q", text, tc.logs)
			}
		})
	}
}

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

// answersNameNobody refuses requests whose key another process holds. The server's own log names
// that process, and no answer does.
func answersNameNobody(t *testing.T, s Surface) {
	var log logtest.Buffer
	d := memlock.New()
	open := func(identity string) *core.Engine {
		e, err := core.New(d, core.WithNamespace("test"), core.WithStoreTimeout(2*time.Minute), core.WithIdentity(identity),
			core.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		return e
	}
	const holder, own, value = "orders-7f9c", "orders-0b1d", "4242"
	here := open(own)
	defer Hold(t, open(holder), "card:"+value)()
	lock := func(wait time.Duration) []Wrap {
		return []Wrap{{Engine: here, Policy: core.Policy{Key: "card:{path.card}", Wait: wait}}}
	}
	srv := Serve(t, s.Mount(t,
		Route{Pattern: "POST /try/{card}", Around: lock(core.TryOnce), Handler: Never(t)},
		Route{Pattern: "POST /wait/{card}", Around: lock(10 * time.Millisecond), Handler: Never(t)},
	))
	for path, code := range map[string]string{"/try/": "LOCK_BUSY", "/wait/": "LOCK_TIMEOUT"} {
		a := Send(t, srv, NewRequest(t, srv, http.MethodPost, path+value, ""))
		a.MustBe(t, 409, code)
		if text := fmt.Sprint(a.Header, a.Body); strings.Contains(text, holder) || strings.Contains(text, own) || strings.Contains(text, value) {
			t.Errorf("the answer tells %s", text)
		}
	}
	if text := log.String(); strings.Count(text, "lock.holder="+holder) != 2 || strings.Contains(text, value) {
		t.Errorf("the log should name the holder twice, and no value: %s", text)
	}
}
