package httplock

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestRequestsForOneKeyRunOneAtATime(t *testing.T) {
	e, _ := routetest.Open(t)
	counts := map[string]int{} // a race unless the lock works
	var mu sync.Mutex          // guards the map, not the counts
	get := func(sku string) int { mu.Lock(); defer mu.Unlock(); return counts[sku] }
	set := func(sku string, n int) { mu.Lock(); defer mu.Unlock(); counts[sku] = n }
	mux := http.NewServeMux()
	lock := Lock(e, core.Policy{Key: "stock:{path.sku}", Wait: core.Forever})
	mux.Handle("POST /products/{sku}/deduct", lock(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		set(r.PathValue("sku"), get(r.PathValue("sku"))+1)
	})))
	s := routetest.Serve(t, mux)

	const each = 40
	var wg sync.WaitGroup
	for i := range 2 * each {
		req := routetest.NewRequest(t, s, http.MethodPost, "/products/"+strconv.Itoa(i%2)+"/deduct", "{}")
		wg.Go(func() { routetest.Send(t, s, req).MustBe(t, 200, "") })
	}
	wg.Wait()
	if counts["0"] != each || counts["1"] != each {
		t.Errorf("counted %v; want %d each", counts, each)
	}
}

func TestTakenKeyIsAConflictForItsOwnRequestsOnly(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("HTTP/2 %v", http2), func(t *testing.T) {
			e, _ := routetest.Open(t)
			mux := http.NewServeMux()
			mux.Handle("GET /try/{sku}", Lock(e, core.Policy{Key: "stock:{path.sku}"})(http.HandlerFunc(routetest.TellKey)))
			mux.Handle("GET /wait/{sku}", Lock(e, core.Policy{Key: "stock:{path.sku}", Wait: 10 * time.Millisecond})(http.HandlerFunc(routetest.TellKey)))
			s := routetest.Serve(t, mux, http2)
			release := routetest.Hold(t, e, "stock:a")
			for path, code := range map[string]string{"/try/a": "LOCK_BUSY", "/wait/a": "LOCK_TIMEOUT"} {
				a := routetest.Get(t, s, path)
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
			routetest.Get(t, s, "/try/b").MustBe(t, 200, "")

			head := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodHead, "/try/a", ""))
			if head.Status != 409 || head.Body != "" || head.Header.Get("Retry-After") == "" {
				t.Errorf("HEAD got %d %q %v; want 409 without a body", head.Status, head.Body, head.Header)
			}
			release()
			routetest.Get(t, s, "/try/a").MustBe(t, 200, "")
			routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodHead, "/try/a", "")).MustBe(t, 200, "")
		})
	}
}

func TestOtherErrorsBecomeProblems(t *testing.T) {
	const secret = "10.0.0.7:6379"
	t.Run("store down", func(t *testing.T) {
		e, d := routetest.Open(t)
		s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(routetest.Never(t)))
		d.Fail(errors.New(secret))
		a := routetest.Get(t, s, "/")
		a.MustBe(t, 503, "LOCK_UNAVAILABLE")
		if strings.Contains(a.Body, secret) {
			t.Errorf("what the store said is shown: %s", a.Body)
		}
	})
	t.Run("engine closed", func(t *testing.T) {
		e, _ := routetest.Open(t)
		s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"})(routetest.Never(t)))
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		routetest.Get(t, s, "/").MustBe(t, 503, "LOCK_CLOSED")
	})
	t.Run("deadlock", func(t *testing.T) {
		e, _ := routetest.Open(t)
		logged := logtest.Capture(t)
		lock := Lock(e, core.Policy{Key: "k"})
		s := routetest.Serve(t, lock(lock(routetest.Never(t))))
		routetest.Get(t, s, "/").MustBe(t, 500, "LOCK_DEADLOCK")
		s.Close()
		if !strings.Contains(logged.String(), "error.type=LOCK_DEADLOCK") {
			t.Errorf("not logged: %s", logged)
		}
	})
}

func TestHandlerSeesLeaseAndOuterValues(t *testing.T) {
	e, _ := routetest.Open(t)
	type value struct{}
	inner := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		l, ok := core.LeaseFrom(r.Context())
		if !ok || l.Key() != "k" || r.Context().Value(value{}) != "v" || r.PathValue("x") != "a" || r.Pattern != "/{x}" {
			t.Errorf("lease %v, value %v, x %q, pattern %q", ok, r.Context().Value(value{}), r.PathValue("x"), r.Pattern)
		}
	})
	mux := http.NewServeMux()
	mux.Handle("/{x}", Lock(e, core.Policy{Key: "k"})(inner))
	s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(context.WithValue(r.Context(), value{}, "v"))
		mux.ServeHTTP(w, r)
		if _, ok := core.LeaseFrom(r.Context()); ok || r.Context().Err() != nil {
			t.Error("the outer request's context has changed")
		}
	}))
	routetest.Get(t, s, "/a").MustBe(t, 200, "")
}

func TestLocksNestFromTheOutside(t *testing.T) {
	e, _ := routetest.Open(t)
	s := routetest.Serve(t, Lock(e, core.Policy{Key: "a"})(Lock(e, core.Policy{Key: "b"})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if routetest.Free(t, e, "a") || routetest.Free(t, e, "b") {
			t.Error("a lock is not held")
		}
	}))))
	routetest.Get(t, s, "/").MustBe(t, 200, "")
	if !routetest.Free(t, e, "a") || !routetest.Free(t, e, "b") {
		t.Error("a lock is still held")
	}
}

func TestPanicsPassThroughAndRelease(t *testing.T) {
	for name, value := range map[string]any{"panic": "boom", "http.ErrAbortHandler": http.ErrAbortHandler} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, HTTP/2 %v", name, http2), func(t *testing.T) {
				e, _ := routetest.Open(t)
				seen := make(chan any, 1)
				locked := Lock(e, core.Policy{Key: "k"})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(value) }))
				s := routetest.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					defer func() {
						p := recover()
						seen <- p
						panic(p)
					}()
					locked.ServeHTTP(w, r)
				}), http2)
				// A POST is not sent again.
				res, err := s.Client().Do(routetest.NewRequest(t, s, http.MethodPost, "/", "x"))
				if err == nil {
					res.Body.Close()
					t.Errorf("the request that broke off is answered: %d", res.StatusCode)
				}
				if got := <-seen; got != value {
					t.Errorf("panic value is %v; want %v", got, value)
				}
				if !routetest.Free(t, e, "k") {
					t.Error("the key stays locked")
				}
			})
		}
	}
}

func TestFilterLetsRequestsThroughUnlocked(t *testing.T) {
	e, _ := routetest.Open(t)
	s := routetest.Serve(t, Lock(e, core.Policy{Key: "k"}, WithFilter(func(r *http.Request) bool {
		return r.Method != http.MethodOptions
	}))(http.HandlerFunc(routetest.TellKey)))
	if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodOptions, "/", "")); a.Body != "unlocked" {
		t.Errorf("OPTIONS got %q", a.Body)
	}
	if a := routetest.Get(t, s, "/"); a.Body != "k" {
		t.Errorf("GET got %q", a.Body)
	}
}

func TestErrorHandlerAnswersInPlaceOfTheLock(t *testing.T) {
	e, d := routetest.Open(t)
	type call struct {
		err      error
		answered bool
	}
	calls := make(chan call, 1)
	mux := http.NewServeMux()
	lock := Lock(e, core.Policy{Key: "k"}, WithErrorHandler(func(w http.ResponseWriter, r *http.Request, err error) {
		calls <- call{err, Answered(w)}
		if _, ok := core.LeaseFrom(r.Context()); ok {
			t.Error("the request is the handler's")
		}
		if !Answered(w) {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	expire := func(w http.ResponseWriter, r *http.Request) {
		d.Expire("test/k")
		<-r.Context().Done()
	}
	mux.Handle("/silent", lock(http.HandlerFunc(expire)))
	mux.Handle("/answers", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusAccepted)
		expire(w, r)
	})))
	s := routetest.Serve(t, mux)
	release := routetest.Hold(t, e, "k")
	routetest.Get(t, s, "/silent").MustBe(t, 418, "")
	if c := <-calls; !errors.Is(c.err, core.ErrBusy) || c.answered {
		t.Errorf("called with %+v; want ErrBusy", c)
	}
	release()
	routetest.Get(t, s, "/silent").MustBe(t, 418, "")
	if c := <-calls; !errors.Is(c.err, core.ErrLost) || c.answered {
		t.Errorf("called with %+v; want ErrLost", c)
	}
	routetest.Get(t, s, "/answers").MustBe(t, 202, "")
	if c := <-calls; !errors.Is(c.err, core.ErrLost) || !c.answered {
		t.Errorf("called with %+v; want ErrLost, answered", c)
	}
}
