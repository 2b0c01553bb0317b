package middleware

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestRequestsForOneKeyRunOneAtATime(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	counts := map[string]int{} // a race unless the lock works
	var mu sync.Mutex          // guards the map, not the counts
	get := func(sku string) int { mu.Lock(); defer mu.Unlock(); return counts[sku] }
	set := func(sku string, n int) { mu.Lock(); defer mu.Unlock(); counts[sku] = n }
	r.POST("/products/:sku/deduct", Lock(e, core.Policy{Key: "stock:{path.sku}", Wait: core.Forever}), func(c *gin.Context) {
		set(c.Param("sku"), get(c.Param("sku"))+1)
	})
	s := routetest.Serve(t, r)

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
	e, _ := routetest.Open(t)
	r := newRouter()
	entered, leave := make(chan struct{}), make(chan struct{})
	r.GET("/hold/:sku", Lock(e, core.Policy{Key: "stock:{path.sku}"}), func(*gin.Context) {
		close(entered)
		<-leave
	})
	r.GET("/try/:sku", Lock(e, core.Policy{Key: "stock:{path.sku}"}), tellKey)
	r.GET("/wait/:sku", Lock(e, core.Policy{Key: "stock:{path.sku}", Wait: 10 * time.Millisecond}), tellKey)
	s := routetest.Serve(t, r)

	var wg sync.WaitGroup
	hold := routetest.NewRequest(t, s, http.MethodGet, "/hold/a", "")
	wg.Go(func() { routetest.Send(t, s, hold).MustBe(t, 200, "") })
	<-entered
	for path, code := range map[string]string{"/try/a": "LOCK_BUSY", "/wait/a": "LOCK_TIMEOUT"} {
		a := routetest.Get(t, s, path)
		a.MustBe(t, 409, code)
		if strings.Contains(a.Body, "stock:a") {
			t.Errorf("the key is shown: %s", a.Body)
		}
		if n, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || n < 1 {
			t.Errorf("Retry-After is %q; want at least 1", a.Header.Get("Retry-After"))
		}
	}
	routetest.Get(t, s, "/try/b").MustBe(t, 200, "")
	close(leave)
	wg.Wait()
	routetest.Get(t, s, "/try/a").MustBe(t, 200, "")
}

func TestHeadIsRefusedWithoutABody(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.HEAD("/", Lock(e, core.Policy{Key: "k"}), tellKey)
	s := routetest.Serve(t, r)
	defer routetest.Hold(t, e, "k")()
	a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodHead, "/", ""))
	a.MustBe(t, 409, "")
	if a.Body != "" || a.Header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("got %q, %v", a.Body, a.Header)
	}
}

func TestRefusedCallsNeverRun(t *testing.T) {
	e, d := routetest.Open(t)
	defer routetest.Hold(t, e, "held")()
	closed, _ := routetest.Open(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	within := func(d time.Duration) gin.HandlerFunc {
		return func(c *gin.Context) {
			ctx, cancel := context.WithTimeout(c.Request.Context(), d)
			defer cancel()
			c.Request = c.Request.WithContext(ctx)
			c.Next()
		}
	}
	const secret = "10.0.0.7:6379 said secret"
	for _, tc := range []struct {
		name   string
		before gin.HandlerFunc
		engine *core.Engine
		policy core.Policy
		fail   error
		status int
		code   string
	}{
		{name: "deadline", before: within(20 * time.Millisecond), engine: e, policy: core.Policy{Key: "held", Wait: core.Forever}, status: 504, code: "DEADLINE_EXCEEDED"},
		{name: "store down", engine: e, policy: core.Policy{Key: "down"}, fail: errors.New(secret), status: 503, code: "LOCK_UNAVAILABLE"},
		{name: "engine closed", engine: closed, policy: core.Policy{Key: "k"}, status: 503, code: "LOCK_CLOSED"},
		{name: "value missing", engine: e, policy: core.Policy{Key: "{query.x}"}, status: 400, code: "LOCK_KEY_INVALID"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRouter()
			if tc.before != nil {
				r.Use(tc.before)
			}
			r.GET("/", Lock(tc.engine, tc.policy), func(*gin.Context) { t.Error("the handler runs") })
			s := routetest.Serve(t, r)
			if tc.fail != nil {
				d.Fail(tc.fail)
				defer d.Heal()
			}
			a := routetest.Get(t, s, "/")
			a.MustBe(t, tc.status, tc.code)
			if strings.Contains(a.Body, "secret") {
				t.Errorf("what the store said is shown: %s", a.Body)
			}
		})
	}
}

func TestNestedUseOfAKeyIsRefusedOrCounted(t *testing.T) {
	for _, fallback := range []bool{true, false} {
		t.Run(fmt.Sprintf("fallback %v", fallback), func(t *testing.T) {
			logtest.Capture(t)
			e, _ := routetest.Open(t)
			r := newRouter()
			r.ContextWithFallback = fallback
			p := core.Policy{Key: "k", Wait: core.Forever}
			again := p
			again.Reentrant = true
			r.GET("/twice", Lock(e, p), Lock(e, p), tellKey)
			r.GET("/reentrant", Lock(e, p), Lock(e, again), tellKey)
			r.GET("/context", Lock(e, p), func(c *gin.Context) {
				if err := e.Do(c, p, func(context.Context) error { return nil }); !errors.Is(err, core.ErrDeadlock) {
					t.Errorf("got %v; want ErrDeadlock", err)
				}
			})
			s := routetest.Serve(t, r)
			routetest.Get(t, s, "/twice").MustBe(t, 500, "LOCK_DEADLOCK")
			routetest.Get(t, s, "/reentrant").MustBe(t, 200, "")
			routetest.Get(t, s, "/context").MustBe(t, 200, "")
			if !routetest.Free(t, e, "k") {
				t.Error("the key stays locked")
			}
		})
	}
}

func TestFilterAloneLetsCallsRunUnlocked(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.GET("/", Lock(e, core.Policy{Key: "k"}, WithFilter(func(c *gin.Context) bool { return c.Query("dry") == "" })), tellKey)
	s := routetest.Serve(t, r)
	if a := routetest.Get(t, s, "/"); a.Body != "k" {
		t.Errorf("got %q; want the key", a.Body)
	}
	if a := routetest.Get(t, s, "/?dry=1"); a.Body != "unlocked" {
		t.Errorf("got %q; want unlocked", a.Body)
	}
}

func TestErrorHandlerReplacesAnswers(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	own := WithErrorHandler(func(c *gin.Context, err error) {
		if !c.IsAborted() && !errors.Is(err, core.ErrMaxHold) {
			t.Error("the chain goes on")
		}
		c.String(http.StatusTeapot, "%v %v %v", errors.Is(err, core.ErrKey), errors.Is(err, core.ErrMaxHold), errors.Is(err, ErrBody))
	})
	r.GET("/key", Lock(e, core.Policy{Key: "{query.x}"}, own), tellKey)
	r.GET("/hold", Lock(e, core.Policy{Key: "k", MaxHold: 10 * time.Millisecond}, own), func(c *gin.Context) { <-c.Request.Context().Done() })
	r.POST("/body", func(c *gin.Context) { c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, 1) },
		Lock(e, core.Policy{Key: "k"}, own), tellKey)
	s := routetest.Serve(t, r)
	for _, tc := range []struct{ method, path, body, want string }{
		{"GET", "/key", "", "true false false"},
		{"GET", "/hold", "", "false true false"},
		{"POST", "/body", "long", "false false true"},
	} {
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, tc.method, tc.path, tc.body)); a.Status != http.StatusTeapot || a.Body != tc.want {
			t.Errorf("%s: %d %q; want %q", tc.path, a.Status, a.Body, tc.want)
		}
	}
}

func TestResponseCanBeFlushedAndHijacked(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	read := make(chan struct{})
	r.GET("/flush", Lock(e, core.Policy{Key: "k"}), func(c *gin.Context) {
		_, _ = c.Writer.WriteString("first\n")
		c.Writer.Flush()
		<-read
		_, _ = c.Writer.WriteString("second\n")
	})
	r.GET("/hijack", Lock(e, core.Policy{Key: "k"}), func(c *gin.Context) {
		conn, _, err := c.Writer.Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nown")
	})
	s := routetest.Serve(t, r)
	res, err := s.Client().Get(s.URL + "/flush")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	if line, err := lines.ReadString('\n'); line != "first\n" {
		t.Fatalf("got %q, %v before the handler's end", line, err)
	}
	close(read)
	if line, err := lines.ReadString('\n'); line != "second\n" {
		t.Errorf("got %q, %v", line, err)
	}
	if a := routetest.Get(t, s, "/hijack"); a.Body != "own" {
		t.Errorf("got %q from the hijacked connection", a.Body)
	}
}
