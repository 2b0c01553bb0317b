package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

type deduction struct {
	SKU   string `uri:"sku" json:"-"`
	Units int    `json:"units" form:"units" xml:"units" yaml:"units" toml:"units" binding:"required,min=1"`
}

func TestLockedRunsTheHandlerWithTheValueThatIsLocked(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/products/:sku/deduct", Locked(e, core.Policy{Key: "stock:{SKU}:{Units}"}, func(c *gin.Context, d deduction) {
		lease, _ := core.LeaseFrom(c)
		c.String(http.StatusOK, "%s %+v", lease.Key(), d)
	}))
	s := routetest.Serve(t, r)
	a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/products/a:b/deduct", `{"units":3}`, "Content-Type", "application/json"))
	if want := "stock:a%3Ab:3 {SKU:a:b Units:3}"; a.Body != want {
		t.Errorf("got %d %q; want %q", a.Status, a.Body, want)
	}
}

func TestLockedRequestsForOneKeyRunOneAtATime(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	counts := map[string]*int{"a": new(int), "b": new(int)} // a race unless the lock works
	r.POST("/:sku", Locked(e, core.Policy{Key: "stock:{SKU}", Wait: core.Forever}, func(_ *gin.Context, d deduction) {
		*counts[d.SKU] += d.Units
	}))
	s := routetest.Serve(t, r)
	const each = 40
	var wg sync.WaitGroup
	for i := range 2 * each {
		req := routetest.NewRequest(t, s, http.MethodPost, "/"+string(rune('a'+i%2)), `{"units":1}`, "Content-Type", "application/json")
		wg.Go(func() { routetest.Send(t, s, req).MustBe(t, 200, "") })
	}
	wg.Wait()
	if *counts["a"] != each || *counts["b"] != each {
		t.Errorf("counted %d and %d; want %d each", *counts["a"], *counts["b"], each)
	}
}

func TestLockedTakenKeyIsAConflictForItsOwnRequestsOnly(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	entered, leave := make(chan struct{}), make(chan struct{})
	r.POST("/", Locked(e, core.Policy{Key: "stock:{SKU}"}, func(_ *gin.Context, d struct {
		SKU  string `json:"sku"`
		Hold bool   `json:"hold"`
	},
	) {
		if d.Hold {
			close(entered)
			<-leave
		}
	}))
	s := routetest.Serve(t, r)
	post := func(body string) *http.Request {
		return routetest.NewRequest(t, s, http.MethodPost, "/", body, "Content-Type", "application/json")
	}
	var wg sync.WaitGroup
	hold := post(`{"sku":"a","hold":true}`)
	wg.Go(func() { routetest.Send(t, s, hold).MustBe(t, 200, "") })
	<-entered
	// Whatever a decoder makes of doubtful input, it is what is locked.
	for _, body := range []string{`{"sku":"a"}`, `{"SKU":"a"}`, `{"sku":"b","Sku":"a"}`, `{"\u0073ku":"a"}`, `{"sku":"a"}{"sku":"b"}`} {
		routetest.Send(t, s, post(body)).MustBe(t, 409, "LOCK_BUSY")
	}
	routetest.Send(t, s, post(`{"sku":"b"}`)).MustBe(t, 200, "")
	close(leave)
	wg.Wait()
	routetest.Send(t, s, post(`{"sku":"a"}`)).MustBe(t, 200, "")
}

func TestLockedUsesPlaceholdersOfTheRequestBesidesFields(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	type req struct {
		Warehouse *struct {
			ID int8 `json:"id"`
		} `json:"warehouse"`
	}
	value := WithValue("tenant", func(c *gin.Context) (string, error) { return c.GetHeader("X-Tenant"), nil })
	r.POST("/:id", Locked(e, core.Policy{Key: "{Warehouse.ID}:{path.id}:{query.q}:{header.X-Tenant}:{client.ip}:{tenant}"},
		func(c *gin.Context, _ req) { tellKey(c) }, value))
	s := routetest.Serve(t, r)
	post := func(path, body string) routetest.Answer {
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, body, "Content-Type", "application/json", "X-Tenant", "t"))
	}
	if a := post("/p?q=x", `{"warehouse":{"id":-7}}`); a.Body != "-7:p:x:t:127.0.0.1:t" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	for body, placeholder := range map[string]string{`{}`: "Warehouse.ID", `{"warehouse":null}`: "Warehouse.ID"} {
		a := post("/p?q=x", body)
		a.MustBe(t, 400, "LOCK_KEY_INVALID")
		if a.Problem.Placeholder != placeholder {
			t.Errorf("%s: the problem is with %q; want %q", body, a.Problem.Placeholder, placeholder)
		}
	}
	if a := post("/p", `{"warehouse":{"id":1}}`); a.Problem.Placeholder != "query.q" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
}

func TestLockedReadsBodiesUpToTheLimit(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	type req struct {
		SKU string `json:"sku" form:"sku"`
	}
	h := Locked(e, core.Policy{Key: "{SKU}"}, func(c *gin.Context, _ req) {
		body, err := io.ReadAll(c.Request.Body)
		if err != nil {
			t.Error(err)
		}
		c.String(http.StatusOK, "%d", len(body))
	}, WithBodyLimit(64))
	r.POST("/", h)
	r.GET("/", h)
	s := routetest.Serve(t, r)
	small := `{"sku":"a"}` + strings.Repeat(" ", 53)
	large := small + " "
	for _, tc := range []struct {
		name, method, path, contentType, body string
		chunked                               bool
		status                                int
		want                                  string // the code, or the answer
	}{
		{"just fits", "POST", "/", "application/json", small, false, 200, "64"},
		{"just fits, of unknown length", "POST", "/", "application/json", small, true, 200, "64"},
		{"too large", "POST", "/", "application/json", large, false, 413, "BODY_TOO_LARGE"},
		{"too large, of unknown length", "POST", "/", "application/json", large, true, 413, "BODY_TOO_LARGE"},
		{"not bound with GET", "GET", "/?sku=a", "application/json", large, false, 200, "65"},
		{"not bound with GET, of unknown length", "GET", "/?sku=a", "application/json", large, true, 200, "65"},
		{"not bound by its type", "POST", "/?sku=a", "text/plain", large, false, 200, "65"},
		{"not bound by its type, of unknown length", "POST", "/?sku=a", "text/plain", large, true, 200, "65"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := routetest.NewRequest(t, s, tc.method, tc.path, tc.body, "Content-Type", tc.contentType)
			if tc.chunked {
				req.ContentLength = -1
			}
			a := routetest.Send(t, s, req)
			if a.Status != tc.status || a.Problem.Code != tc.want && a.Body != tc.want {
				t.Errorf("got %d %q; want %d %q", a.Status, a.Body, tc.status, tc.want)
			}
		})
	}
}

func TestLockedEndsAsLockDoes(t *testing.T) {
	e, _ := routetest.Open(t)
	type req struct {
		Do string `form:"do"`
	}
	r := newRouter()
	r.Use(gin.RecoveryWithWriter(io.Discard))
	r.GET("/", Locked(e, core.Policy{Key: "k", MaxHold: 10 * time.Second}, func(c *gin.Context, q req) {
		switch q.Do {
		case "panic":
			panic("boom")
		case "next":
			c.Next()
		case "abort":
			c.AbortWithStatus(http.StatusTeapot)
		}
	}), func(c *gin.Context) { tellKey(c) })
	r.GET("/lost", Locked(e, core.Policy{Key: "k", MaxHold: 10 * time.Millisecond}, func(c *gin.Context, _ req) {
		<-c.Request.Context().Done()
		if !errors.Is(context.Cause(c.Request.Context()), core.ErrMaxHold) {
			t.Error("the handler is not told why")
		}
	}))
	s := routetest.Serve(t, r)
	for _, tc := range []struct {
		do     string
		status int
		body   string
	}{
		{"", 200, "unlocked"},
		{"next", 200, "k"},
		{"panic", 500, ""},
		{"abort", http.StatusTeapot, ""},
	} {
		if a := routetest.Get(t, s, "/?do="+tc.do); a.Status != tc.status || a.Body != tc.body {
			t.Errorf("%q: got %d %q; want %d %q", tc.do, a.Status, a.Body, tc.status, tc.body)
		}
		if !routetest.Free(t, e, "k") {
			t.Errorf("%q: the key stays locked", tc.do)
		}
	}
	logtest.Capture(t)
	routetest.Get(t, s, "/lost").MustBe(t, 500, "LOCK_MAX_HOLD")
}

func TestLockedBindsRequestsThatTheFilterLetsThrough(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.POST("/:sku", Locked(e, core.Policy{Key: "stock:{SKU}"}, func(c *gin.Context, d deduction) {
		_, locked := core.LeaseFrom(c)
		c.String(http.StatusOK, "%+v %v", d, locked)
	}, WithFilter(func(c *gin.Context) bool { return c.Query("dry") == "" })))
	s := routetest.Serve(t, r)
	post := func(path, body string) routetest.Answer {
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, body, "Content-Type", "application/json"))
	}
	for path, want := range map[string]string{"/a": "{SKU:a Units:2} true", "/a?dry=1": "{SKU:a Units:2} false"} {
		if a := post(path, `{"units":2}`); a.Body != want {
			t.Errorf("%s: got %d %q; want %q", path, a.Status, a.Body, want)
		}
	}
	post("/a?dry=1", `{}`).MustBe(t, 400, "REQUEST_INVALID")
}

func TestFieldThatOnlyThePathFillsNeedsItsParameter(t *testing.T) {
	e, _ := routetest.Open(t)
	type req struct {
		ID   int `uri:"id" json:"-"`
		Also int `uri:"also" json:"also"`
	}
	r := newRouter()
	h := Locked(e, core.Policy{Key: "k:{ID}:{Also}"}, func(c *gin.Context, _ req) { tellKey(c) })
	r.GET("/a/:id", h)
	r.GET("/b/:idd", h)
	s := routetest.Serve(t, r)
	if a := routetest.Get(t, s, "/a/7"); a.Body != "k:7:0" {
		t.Errorf("got %d %q", a.Status, a.Body)
	}
	logged := logtest.Capture(t)
	routetest.Get(t, s, "/b/7").MustBe(t, 500, "LOCK_POLICY") // a 0 would put all behind one lock
	if !strings.Contains(logged.String(), "path.id") {
		t.Errorf("the log does not say what is missing: %s", logged)
	}
}

func TestLockedLeavesTheRequestToTheHandler(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	type req struct {
		SKU string `json:"sku" form:"sku"`
	}
	r.POST("/", func(c *gin.Context) {
		before := c.Request
		c.Next()
		if c.Request != before {
			t.Error("c.Request is not the one from before the lock")
		}
	}, Locked(e, core.Policy{Key: "{SKU}"}, func(c *gin.Context, q req) {
		form := c.PostForm("sku")
		var again, with req
		if err := c.ShouldBind(&again); err != nil {
			t.Error(err)
		}
		if form == "" {
			if err := c.ShouldBindBodyWithJSON(&with); err != nil {
				t.Error(err)
			}
		} else {
			with = q
		}
		c.String(http.StatusOK, "%v", again == q && with == q)
	}))
	s := routetest.Serve(t, r)
	for contentType, body := range map[string]string{
		"application/json":                  `{"sku":"a"}`,
		"application/x-www-form-urlencoded": "sku=a",
		"multipart/form-data; boundary=b":   multipartBody("b", "sku", "a"),
	} {
		if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/", body, "Content-Type", contentType)); a.Body != "true" {
			t.Errorf("%s: got %d %q", contentType, a.Status, a.Body)
		}
	}
}

// multipartBody returns a form of names and values.
func multipartBody(boundary string, pairs ...string) string {
	var b strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		fmt.Fprintf(&b, "--%s\r\nContent-Disposition: form-data; name=%q\r\n\r\n%s\r\n", boundary, pairs[i], pairs[i+1])
	}
	fmt.Fprintf(&b, "--%s--\r\n", boundary)
	return b.String()
}
