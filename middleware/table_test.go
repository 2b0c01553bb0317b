package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/logtest"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

// newTable returns a table that must compile.
func newTable(t testing.TB, e *core.Engine, rules Rules, o ...Option) *Table {
	t.Helper()
	table, err := NewTable(e, rules, o...)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func TestTableLocksTheRoutesThatHaveRules(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{
		"POST /products/:sku/deduct": {Key: "stock:{path.sku}"},
		"/orders/:id":                {Key: "order:{path.id}"},
		"DELETE /orders/:id":         {Key: "gone:{path.id}"},
		"GET /files/*name":           {Key: "file:{path.name}"},
	})
	for _, validated := range []bool{false, true} {
		t.Run(fmt.Sprintf("validated %v", validated), func(t *testing.T) {
			r := newRouter()
			r.Use(table.Handler())
			r.POST("/products/:sku/deduct", tellKey)
			r.GET("/products/:sku/deduct", tellKey)
			r.Any("/orders/:id", tellKey)
			group := r.Group("/files")
			group.GET("/*name", tellKey)
			r.GET("/free", tellKey)
			r.NoRoute(func(c *gin.Context) { c.String(http.StatusNotFound, "none") })
			if validated {
				if err := table.Validate(r.Routes()); err != nil {
					t.Fatal(err)
				}
			}
			s := routetest.Serve(t, r)
			for _, tc := range []struct{ request, want string }{
				{"POST /products/a/deduct", "stock:a"},
				{"GET /products/a/deduct", "unlocked"},
				{"GET /orders/7", "order:7"},
				{"PUT /orders/7", "order:7"},
				{"DELETE /orders/7", "gone:7"},
				{"GET /files/a/b", "file:%2Fa%2Fb"},
				{"GET /free", "unlocked"},
				{"GET /nowhere", "none"},
				{"PUT /free", "none"},
			} {
				method, path, _ := strings.Cut(tc.request, " ")
				if a := routetest.Send(t, s, routetest.NewRequest(t, s, method, path, "")); a.Body != tc.want {
					t.Errorf("%s: got %q; want %q", tc.request, a.Body, tc.want)
				}
			}
			req := routetest.NewRequest(t, s, http.MethodHead, "/orders/7", "")
			routetest.Send(t, s, req).MustBe(t, 200, "")
		})
	}
}

func TestTableExcludesPerRule(t *testing.T) {
	e, _ := routetest.Open(t)
	r := newRouter()
	r.Use(newTable(t, e, Rules{"POST /stock/:sku": {Key: "stock:{path.sku}"}}).Handler())
	entered, leave := make(chan struct{}), make(chan struct{})
	r.POST("/stock/:sku", func(c *gin.Context) {
		if c.Query("hold") != "" {
			close(entered)
			<-leave
		}
	})
	s := routetest.Serve(t, r)
	var wg sync.WaitGroup
	hold := routetest.NewRequest(t, s, http.MethodPost, "/stock/a?hold=1", "")
	wg.Go(func() { routetest.Send(t, s, hold).MustBe(t, 200, "") })
	<-entered
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/stock/a", "")).MustBe(t, 409, "LOCK_BUSY")
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/stock/b", "")).MustBe(t, 200, "")
	close(leave)
	wg.Wait()
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/stock/a", "")).MustBe(t, 200, "")
}

func TestTableOptionsApplyToEachRule(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{"POST /a": {Key: "a:{tenant}"}, "POST /b": {Key: "b:{body.x}"}},
		WithValue("tenant", func(c *gin.Context) (string, error) { return c.GetHeader("X-Tenant"), nil }),
		WithFilter(func(c *gin.Context) bool { return c.Query("dry") == "" }),
		WithErrorHandler(func(c *gin.Context, err error) { c.String(http.StatusTeapot, "%v", errors.Is(err, core.ErrKey)) }),
		WithBodyLimit(16))
	r := newRouter()
	r.Use(table.Handler())
	r.POST("/a", tellKey)
	r.POST("/b", tellKey)
	s := routetest.Serve(t, r)
	post := func(path, body string) routetest.Answer {
		return routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, path, body, "X-Tenant", "t", "Content-Type", "application/json"))
	}
	for _, tc := range []struct{ path, body, want string }{
		{"/a", "", "a:t"},
		{"/a?dry=1", "", "unlocked"},
		{"/b", `{"x":"y"}`, "b:y"},
		{"/b?dry=1", "", "unlocked"},
		{"/b", `{}`, "true"},
		{"/b", `{"x":"0123456789"}`, "true"},
	} {
		if a := post(tc.path, tc.body); a.Body != tc.want {
			t.Errorf("%s %s: got %d %q; want %q", tc.path, tc.body, a.Status, a.Body, tc.want)
		}
	}
}

func TestMethodChangedAfterRoutingIsNoWayRoundTheLock(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{"POST /stock": {Key: "stock"}, "PUT /mine": {Key: "mine"}})
	r := newRouter()
	r.Use(func(c *gin.Context) {
		if method := c.GetHeader("X-HTTP-Method-Override"); method != "" {
			c.Request.Method = method
		}
	}, table.Handler())
	ran := false
	stock := func(says string) gin.HandlerFunc { // closures of one function
		return func(c *gin.Context) {
			ran = ran || says == "" && c.Request.Method != http.MethodPost
			if says != "" {
				c.String(http.StatusOK, says)
				return
			}
			tellKey(c)
		}
	}
	r.POST("/stock", stock(""))
	r.GET("/stock", stock("look"))
	r.PUT("/mine", tellKey)
	if err := table.Validate(r.Routes()); err != nil {
		t.Fatal(err)
	}
	s := routetest.Serve(t, r)
	for _, method := range []string{"DELETE", "post", "GET"} {
		logged := logtest.Capture(t)
		a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/stock", "", "X-HTTP-Method-Override", method))
		a.MustBe(t, 500, "LOCK_POLICY")
		if method == "DELETE" && !strings.Contains(logged.String(), "method does not fit its gin route") {
			t.Errorf("%s: nothing is logged: %s", method, logged)
		}
	}
	if ran {
		t.Error("the handler has run without its lock")
	}
	if a := routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPost, "/stock", "")); a.Body != "stock" {
		t.Errorf("an honest request got %d %q", a.Status, a.Body)
	}
	if a := routetest.Get(t, s, "/stock"); a.Body != "look" {
		t.Errorf("a request for a route without a rule got %d %q", a.Status, a.Body)
	}
	routetest.Send(t, s, routetest.NewRequest(t, s, http.MethodPut, "/mine", "", "X-HTTP-Method-Override", "GET")).MustBe(t, 500, "LOCK_POLICY")
}

func TestRedirectsRunNoHandler(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{"GET /stock": {Key: "stock"}})
	r := newRouter()
	r.RedirectFixedPath = true
	r.Use(table.Handler())
	r.GET("/stock", tellKey)
	s := routetest.Serve(t, r)
	s.Client().CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for _, path := range []string{"/stock/", "/STOCK", "//stock", "/x/../stock"} {
		if a := routetest.Get(t, s, path); a.Status == http.StatusOK {
			t.Errorf("%s: got %d %q; want no 200", path, a.Status, a.Body)
		}
	}
}

func TestRewrittenRequestsAreLockedByTheirNewRoute(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{"GET /new/:id": {Key: "new:{path.id}"}, "GET /outer": {Key: "outer"}, "GET /same": {Key: "new:1"}})
	r := newRouter()
	r.Use(table.Handler())
	to := func(path string) gin.HandlerFunc {
		return func(c *gin.Context) {
			c.Request.URL.Path = path
			r.HandleContext(c)
			c.Abort()
		}
	}
	r.GET("/new/:id", tellKey)
	r.GET("/old", to("/new/1"))
	r.GET("/outer", to("/new/2"))
	r.GET("/same", to("/new/1"))
	if err := table.Validate(r.Routes()); err != nil {
		t.Fatal(err)
	}
	s := routetest.Serve(t, r)
	for path, want := range map[string]string{"/old": "new:1", "/outer": "new:2"} {
		if a := routetest.Get(t, s, path); a.Body != want {
			t.Errorf("%s: got %d %q; want %q", path, a.Status, a.Body, want)
		}
	}
	routetest.Get(t, s, "/same").MustBe(t, 500, "LOCK_DEADLOCK")
	for _, key := range []string{"new:1", "new:2", "outer"} {
		if !routetest.Free(t, e, key) {
			t.Errorf("%s stays locked", key)
		}
	}
}

func TestTableTwiceOnARouteIsRefusedUnlessReentrant(t *testing.T) {
	e, _ := routetest.Open(t)
	for _, reentrant := range []bool{false, true} {
		table := newTable(t, e, Rules{"GET /": {Key: "k", Reentrant: reentrant}})
		r := newRouter()
		r.Use(table.Handler(), table.Handler())
		r.GET("/", tellKey)
		a := routetest.Get(t, routetest.Serve(t, r), "/")
		if reentrant {
			a.MustBe(t, 200, "")
		} else {
			a.MustBe(t, 500, "LOCK_DEADLOCK")
		}
	}
}

func TestRawPathsFindTheirRule(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{"GET /p/:id": {Key: "p:{path.id}"}})
	r := newRouter()
	r.UseRawPath = true
	r.UnescapePathValues = false
	r.Use(table.Handler())
	r.GET("/p/:id", tellKey)
	if a := routetest.Get(t, routetest.Serve(t, r), "/p/a%2Fb"); a.Body != "p:a%252Fb" {
		t.Errorf("got %d %q; want the value that c.Param gives", a.Status, a.Body)
	}
}

func TestEscapedColonsFindTheirRule(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{`GET /a\:x`: {Key: "k"}})
	r := newRouter()
	r.Use(table.Handler())
	r.GET(`/a\:x`, tellKey)
	s := routetest.Serve(t, r)
	found := false
	for range 2 { // gin rewrites its routes when it begins to serve, if it knows such colons at all
		if err := table.Validate(r.Routes()); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"/a:x", `/a%5Cy`} {
			a := routetest.Get(t, s, path)
			found = found || a.Status == http.StatusOK
			if a.Status == http.StatusOK && a.Body != "k" {
				t.Errorf("%s: got %q; want the key", path, a.Body)
			}
		}
	}
	if !found {
		t.Error("the route is not found")
	}
}

func TestValidateIsSafeWhileServing(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{"GET /:id": {Key: "{path.id}"}})
	r := newRouter()
	r.Use(table.Handler())
	r.GET("/:id", tellKey)
	routes := r.Routes()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest(http.MethodGet, fmt.Sprintf("/k%d", i), nil))
			if w.Code != http.StatusOK {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
		wg.Go(func() {
			if err := table.Validate(routes); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestRoutesWithoutARuleCostNoAllocation(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{"POST /stock": {Key: "stock"}})
	r := newRouter()
	var c *gin.Context
	keep := func(g *gin.Context) {
		c = g
		if n := testing.AllocsPerRun(100, func() { table.handle(c) }); n != 0 {
			t.Errorf("%v allocations; want none", n)
		}
	}
	r.POST("/stock", tellKey)
	r.GET("/stock", keep)
	r.GET("/free", keep)
	if err := table.Validate(r.Routes()); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/stock", "/free"} {
		r.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil))
	}
}
