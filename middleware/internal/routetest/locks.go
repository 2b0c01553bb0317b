package routetest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/core/memlock"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
)

func requestsForOneKeyRunOneAtATime(t *testing.T, s Surface) {
	e, _ := Open(t)
	counts := map[string]int{} // a race unless the lock works
	var mu sync.Mutex          // guards the map, not the counts
	get := func(sku string) int { mu.Lock(); defer mu.Unlock(); return counts[sku] }
	set := func(sku string, n int) { mu.Lock(); defer mu.Unlock(); counts[sku] = n }
	srv := Serve(t, s.one(t, "POST /products/{sku}/deduct", func(_ http.ResponseWriter, r *http.Request) {
		set(r.PathValue("sku"), get(r.PathValue("sku"))+1)
	}, Wrap{Engine: e, Policy: core.Policy{Key: "stock:{path.sku}", Wait: core.Forever}}))

	const each = 40
	var wg sync.WaitGroup
	for i := range 2 * each {
		req := NewRequest(t, srv, http.MethodPost, "/products/"+strconv.Itoa(i%2)+"/deduct", "{}")
		wg.Go(func() { Send(t, srv, req).MustBe(t, 200, "") })
	}
	wg.Wait()
	if counts["0"] != each || counts["1"] != each {
		t.Errorf("counted %v; want %d each", counts, each)
	}
}

func takenKeyIsAConflict(t *testing.T, s Surface) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			e, _ := Open(t)
			try := []Wrap{{Engine: e, Policy: core.Policy{Key: "stock:{path.sku}"}}}
			wait := []Wrap{{Engine: e, Policy: core.Policy{Key: "stock:{path.sku}", Wait: 10 * time.Millisecond}}}
			entered, leave := make(chan struct{}), make(chan struct{})
			srv := Serve(t, s.Mount(t,
				Route{Pattern: "GET /hold/{sku}", Around: try, Handler: func(http.ResponseWriter, *http.Request) {
					close(entered)
					<-leave
				}},
				Route{Pattern: "GET /try/{sku}", Around: try, Handler: TellKey},
				Route{Pattern: "HEAD /try/{sku}", Around: try, Handler: TellKey},
				Route{Pattern: "GET /wait/{sku}", Around: wait, Handler: TellKey},
			), http2)
			head := func() Answer { return Send(t, srv, NewRequest(t, srv, http.MethodHead, "/try/a", "")) }
			var wg sync.WaitGroup
			hold := NewRequest(t, srv, http.MethodGet, "/hold/a", "")
			wg.Go(func() { Send(t, srv, hold).MustBe(t, 200, "") })
			<-entered
			for path, code := range map[string]string{"/try/a": "LOCK_BUSY", "/wait/a": "LOCK_TIMEOUT"} {
				a := Get(t, srv, path)
				a.MustBe(t, 409, code)
				if strings.Contains(a.Body, "stock:a") {
					t.Errorf("the key is shown: %s", a.Body)
				}
				if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 {
					t.Errorf("Retry-After is %q; want at least 1", a.Header.Get("Retry-After"))
				}
				if a.Header.Get("Content-Type") != "application/problem+json" || a.Problem.Status != 409 || a.Problem.Detail == "" {
					t.Errorf("got %v %+v", a.Header, a.Problem)
				}
			}
			Get(t, srv, "/try/b").MustBe(t, 200, "")
			if a := head(); a.Status != 409 || a.Body != "" || a.Header.Get("Retry-After") == "" || a.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("HEAD got %d %q %v; want 409 without a body", a.Status, a.Body, a.Header)
			}
			close(leave)
			wg.Wait()
			Get(t, srv, "/try/a").MustBe(t, 200, "")
			head().MustBe(t, 200, "")
		})
	}
}

func refusedCallsNeverRun(t *testing.T, s Surface) {
	e, d := Open(t)
	defer Hold(t, e, "held")()
	closed, _ := Open(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	const secret = "10.0.0.7:6379 said secret"
	taken := Wrap{Engine: e, Policy: core.Policy{Key: "k"}}
	for _, tc := range []struct {
		name   string
		within time.Duration // the request's time, if it is limited
		around []Wrap
		fail   error
		status int
		code   string
		logged string
	}{
		{name: "deadline", within: 20 * time.Millisecond, around: []Wrap{{Engine: e, Policy: core.Policy{Key: "held", Wait: core.Forever}}}, status: 504, code: "DEADLINE_EXCEEDED"},
		{name: "store down", around: []Wrap{{Engine: e, Policy: core.Policy{Key: "down"}}}, fail: errors.New(secret), status: 503, code: "LOCK_UNAVAILABLE"},
		{name: "engine closed", around: []Wrap{{Engine: closed, Policy: core.Policy{Key: "k"}}}, status: 503, code: "LOCK_CLOSED"},
		{name: "value missing", around: []Wrap{{Engine: e, Policy: core.Policy{Key: "{query.x}"}}}, status: 400, code: "LOCK_KEY_INVALID"},
		{name: "deadlock", around: []Wrap{taken, taken}, status: 500, code: "LOCK_DEADLOCK", logged: "error.type=LOCK_DEADLOCK"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			logged := logtest.Capture(t)
			router := s.one(t, "GET /", Never(t), tc.around...)
			srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tc.within > 0 {
					ctx, cancel := context.WithTimeout(r.Context(), tc.within)
					defer cancel()
					r = r.WithContext(ctx)
				}
				router.ServeHTTP(w, r)
			}))
			if tc.fail != nil {
				d.Fail(tc.fail)
				defer d.Heal()
			}
			a := Get(t, srv, "/")
			a.MustBe(t, tc.status, tc.code)
			if strings.Contains(a.Body, "secret") || strings.Contains(a.Body, "10.0.0.7") {
				t.Errorf("what the store said is shown: %s", a.Body)
			}
			srv.Close() // the log is written before the request is over
			if !strings.Contains(logged.String(), tc.logged) {
				t.Errorf("not logged: %s", logged)
			}
		})
	}
}

func locksNest(t *testing.T, s Surface) {
	e, _ := Open(t)
	srv := Serve(t, s.one(t, "GET /", func(http.ResponseWriter, *http.Request) {
		if Free(t, e, "a") || Free(t, e, "b") {
			t.Error("a lock is not held")
		}
	}, Wrap{Engine: e, Policy: core.Policy{Key: "a"}}, Wrap{Engine: e, Policy: core.Policy{Key: "b"}}))
	Get(t, srv, "/").MustBe(t, 200, "")
	if !Free(t, e, "a") || !Free(t, e, "b") {
		t.Error("a lock is still held")
	}
}

func panicsPassThrough(t *testing.T, s Surface) {
	for name, value := range map[string]any{"panic": "boom", "http.ErrAbortHandler": http.ErrAbortHandler} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				e, _ := Open(t)
				seen := make(chan any, 1)
				router := s.one(t, "POST /", func(http.ResponseWriter, *http.Request) { panic(value) }, Wrap{Engine: e, Policy: core.Policy{Key: "k"}})
				srv := Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						p := recover()
						seen <- p
						panic(p)
					}()
					router.ServeHTTP(w, r)
				}), http2)
				// A POST is not sent again.
				res, err := srv.Client().Do(NewRequest(t, srv, http.MethodPost, "/", "x"))
				if err == nil {
					res.Body.Close()
					t.Errorf("the request that broke off is answered: %d", res.StatusCode)
				}
				if got := <-seen; got != value {
					t.Errorf("panic value is %v; want %v", got, value)
				}
				if !Free(t, e, "k") {
					t.Error("the key stays locked")
				}
			})
		}
	}
}

func filterLetsThrough(t *testing.T, s Surface) {
	e, _ := Open(t)
	srv := Serve(t, s.one(t, "GET /", TellKey, Wrap{Engine: e, Policy: core.Policy{Key: "k"}, Filter: func(r *http.Request) bool {
		return r.URL.Query().Get("dry") == ""
	}}))
	if a := Get(t, srv, "/"); a.Body != "k" {
		t.Errorf("got %q; want the key", a.Body)
	}
	if a := Get(t, srv, "/?dry=1"); a.Body != "unlocked" {
		t.Errorf("got %q; want unlocked", a.Body)
	}
}

func logsWhereTheEngineDoes(t *testing.T, s Surface) {
	others := logtest.Capture(t)
	own := &logtest.Buffer{}
	e, err := core.New(memlock.New(), core.WithNamespace("test"), core.WithLogger(slog.New(slog.NewTextHandler(own, nil))))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Close() }()
	srv := Serve(t, s.one(t, "GET /other/{id}", Never(t), Wrap{Engine: e, Policy: core.Policy{Key: "stock:{path.sku}"}}))
	Get(t, srv, "/other/a").MustBe(t, 500, "LOCK_POLICY")
	if !strings.Contains(own.String(), "does not fit") || !strings.Contains(own.String(), "was refused") || others.String() != "" {
		t.Errorf("the engine's log has\n%s\nand slog's default\n%s", own, others)
	}
}

// presence counts who is inside.
type presence struct {
	mu           sync.Mutex
	inside, most int
}

func (p *presence) visit() {
	p.mu.Lock()
	p.inside++
	p.most = max(p.most, p.inside)
	p.mu.Unlock()
	time.Sleep(time.Second)
	p.mu.Lock()
	p.inside--
	p.mu.Unlock()
}

func anyMode(t *testing.T, s Surface) {
	for name, tc := range map[string]struct {
		core.Policy
		together int
	}{
		"exclusive":    {core.Policy{Key: "stock:{path.sku}"}, 1},
		"shared":       {core.Policy{Key: "stock:{path.sku}", Mode: core.Shared}, 6},
		"semaphore":    {core.Policy{Key: "stock:{path.sku}", Mode: core.Semaphore, Limit: 2}, 2},
		"strict":       {core.Policy{Key: "stock:{path.sku}", Fairness: core.Strict}, 1},
		"several keys": {core.Policy{Keys: []string{"shop:{query.shop}", "stock:{path.sku}"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var in presence
				tc.Wait = core.Forever
				e, _ := Open(t)
				router := s.one(t, "POST /products/{sku}", func(http.ResponseWriter, *http.Request) { in.visit() }, Wrap{Engine: e, Policy: tc.Policy})
				var all sync.WaitGroup
				for range 6 {
					all.Go(func() {
						w := httptest.NewRecorder()
						router.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/products/7?shop=a", nil))
						if w.Code != http.StatusOK {
							t.Errorf("%d: %s", w.Code, w.Body)
						}
					})
				}
				all.Wait()
				if in.most != tc.together {
					t.Errorf("at most %d were inside together, want %d", in.most, tc.together)
				}
			})
		})
	}
}
