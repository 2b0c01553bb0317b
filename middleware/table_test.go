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

func TestTableReportsEveryFaultOfEveryRule(t *testing.T) {
	e, _ := routetest.Open(t)
	table, err := NewTable(e, Rules{
		"":                                {Key: "k"},
		"POST":                            {Key: "k"},
		"POST  /a":                        {Key: "k"},
		"post /b":                         {Key: "k"},
		"PO5T /c":                         {Key: "k"},
		"POST d":                          {Key: "k"},
		"POST /e /f":                      {Key: "k"},
		"POST /g//h":                      {Key: "k"},
		"POST /i/:":                       {Key: "k"},
		"POST /j/:x/:x":                   {Key: "k"},
		"POST /k/*x/y":                    {Key: "k"},
		"POST /l/:x:y":                    {Key: "k"},
		"POST /m/:sku":                    {Key: "{path.skuu}:{path.id}:{tenant}"},
		"POST /n":                         {Key: "{path.sku}"},
		"POST /o":                         {Key: "k", TTL: -1},
		"POST /p":                         {Key: "{"},
		"put /q/:id":                      {Key: "{path.ix}"},
		"POST /fine/:sku":                 {Key: "{path.sku}"},
		"POST /also/fine/*rest":           {Key: "{path.rest}"},
		"POST /escaped\\:colon/:sku":      {Key: "{path.sku}"},
		"POST /named/:sku":                {Key: "{path.x}", Name: "named"},
		"/every/method/of/this/path/:sku": {Key: "{path.sku}:{path.Sku}"},
	})
	if table != nil || err == nil {
		t.Fatalf("got %v, %v; want an error alone", table, err)
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		`rule "": the key is empty; write it as "POST /products/:sku", or without a method for all`,
		`rule "/every/method/of/this/path/:sku": lock compile "{path.sku}:{path.Sku}": invalid lock policy: {path.Sku}: /every/method/of/this/path/:sku has no parameter of this name; did you mean {path.sku}?`,
		`rule "PO5T /c": the method is not one of upper-case letters`,
		`rule "POST": the key has no path`,
		`rule "POST  /a": the key has white space beyond the one space after the method; write "POST /a"`,
		`rule "POST /e /f": the key is more than a method and a path`,
		`rule "POST /g//h": gin cleans the paths of its routes, so that this is none; write /g/h`,
		`rule "POST /i/:": a parameter of the path has no name`,
		`rule "POST /j/:x/:x": the path has two parameters called x`,
		`rule "POST /k/*x/y": a *parameter takes the whole rest of the path`,
		`rule "POST /l/:x:y": two parameters in one segment`,
		`rule "POST /m/:sku": lock compile "{path.skuu}:{path.id}:{tenant}": invalid lock policy: {path.skuu}: /m/:sku has no parameter of this name; did you mean {path.sku}?`,
		`rule "POST /m/:sku": lock compile "{path.skuu}:{path.id}:{tenant}": invalid lock policy: {path.id}: /m/:sku has no parameter of this name; it has {path.sku}`,
		`rule "POST /m/:sku": lock compile "{path.skuu}:{path.id}:{tenant}": invalid lock policy: {tenant}: unknown; use one of`,
		`rule "POST /n": lock compile "{path.sku}": invalid lock policy: {path.sku}: /n has no parameters`,
		`rule "POST /named/:sku": lock compile "named": invalid lock policy: {path.x}`,
		`rule "POST /o": lock compile "k": invalid lock policy: TTL`,
		`rule "POST /p": lock compile "{": invalid lock policy: Key, column 1`,
		`rule "POST d": the path does not begin with a slash; write /d`,
		`rule "post /b": methods are written in upper case; write POST`,
		`rule "put /q/:id": methods are written in upper case; write PUT`,
		`rule "put /q/:id": lock compile "{path.ix}": invalid lock policy: {path.ix}: /q/:id has no parameter of this name; did you mean {path.id}?`,
	} {
		if len(lines) == 0 || !strings.HasPrefix(lines[0], "gin lock table: "+want) {
			t.Fatalf("got\n%s\nwant\ngin lock table: %s", strings.Join(lines, "\n"), want)
		}
		lines = lines[1:]
	}
	if len(lines) > 0 {
		t.Errorf("unexpected:\n%s", strings.Join(lines, "\n"))
	}
	if !errors.Is(err, core.ErrPolicy) {
		t.Error("the error is no core.ErrPolicy")
	}
}

func TestTableRefusesRulesForTheSameRoutes(t *testing.T) {
	e, _ := routetest.Open(t)
	_, err := NewTable(e, Rules{`POST /a\:x`: {Key: "k"}, "POST /a:x": {Key: "k"}})
	if err == nil || !strings.Contains(err.Error(), `rule "POST /a\\:x": gin cannot tell its routes from those of rule "POST /a:x"`) &&
		!strings.Contains(err.Error(), `rule "POST /a:x": gin cannot tell its routes from those of rule "POST /a\\:x"`) {
		t.Errorf("got %v", err)
	}
}

func TestTableOptionsMustServeSomeRule(t *testing.T) {
	e, _ := routetest.Open(t)
	value := func(*gin.Context) (string, error) { return "v", nil }
	plain := Rules{"POST /a": {Key: "a"}, "POST /b": {Key: "b:{tenant}"}}
	for _, tc := range []struct {
		name    string
		engine  *core.Engine
		rules   Rules
		options []Option
		says    string // empty: no error
	}{
		{"value of one rule", e, plain, []Option{WithValue("tenant", value), nil}, ""},
		{"value of no rule", e, plain, []Option{WithValue("tenant", value), WithValue("user", value)}, "WithValue is given for {user}"},
		{"no rules", e, nil, nil, ""},
		{"no rules for a value", e, nil, []Option{WithValue("tenant", value)}, "WithValue is given for {tenant}"},
		{"body left unread", e, Rules{"POST /a": {Key: "a"}}, []Option{WithoutBodyBuffer()}, ""},
		{
			"body needed by one rule", e,
			Rules{"POST /a": {Key: "a"}, "POST /b": {Key: "{body.x}"}},
			[]Option{WithoutBodyBuffer()},
			`rule "POST /b": WithoutBodyBuffer is given, but the key has a {body.…} placeholder`,
		},
		{"option twice", e, plain, []Option{WithFilter(nil), WithFilter(nil)}, "WithFilter is given twice"},
		{"no engine", nil, plain, nil, "engine is nil"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			table, err := NewTable(tc.engine, tc.rules, tc.options...)
			if (table == nil) != (err != nil) {
				t.Fatalf("got %v, %v", table, err)
			}
			if (err != nil) != (tc.says != "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v; want %q", err, tc.says)
			}
		})
	}
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

func TestValidateReportsRulesWithoutARoute(t *testing.T) {
	e, _ := routetest.Open(t)
	table := newTable(t, e, Rules{
		"POST /products/:sku/deduct": {Key: "stock:{path.sku}"},
		"PUT /products/:id/deduct":   {Key: "k"},
		"PATCH /orders/:id":          {Key: "k"},
		"GET /Refunds/":              {Key: "k"},
		"GET /paiments/:id":          {Key: "k"},
		"/orders/:id":                {Key: "k"},
		"/order/:id":                 {Key: "k"},
		"GET /x":                     {Key: "k"},
		"/both":                      {Key: "k"},
		"GET /both":                  {Key: "k"},
		"POST /both":                 {Key: "k"},
	})
	r := newRouter()
	r.Use(table.Handler())
	r.POST("/products/:sku/deduct", tellKey)
	r.GET("/orders/:id", tellKey)
	r.DELETE("/orders/:id", tellKey)
	r.GET("/refunds", tellKey)
	r.GET("/payments/:id", tellKey)
	r.GET("/both", tellKey)
	r.POST("/both", tellKey)

	err := table.Validate(r.Routes())
	want := strings.Join([]string{
		`gin lock table: rule "/both" is never used: each method of the path has a rule of its own; leave it out`,
		`gin lock table: rule "/order/:id" is for no route; did you mean "/orders/:id"?`,
		`gin lock table: rule "GET /Refunds/" is for no route; did you mean "GET /refunds"?`,
		`gin lock table: rule "GET /paiments/:id" is for no route; did you mean "GET /payments/:id"?`,
		`gin lock table: rule "GET /x" is for no route; no route has a path like it`,
		`gin lock table: rule "PATCH /orders/:id" is for no route; the path has routes for DELETE, GET`,
		`gin lock table: rule "PUT /products/:id/deduct" is for no route; did you mean "POST /products/:sku/deduct"?`,
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
	if err := newTable(t, e, Rules{"GET /x": {Key: "k"}}).Validate(nil); err == nil || !strings.Contains(err.Error(), "there are no routes") {
		t.Errorf("got %v; want that there are no routes", err)
	}
	if err := newTable(t, e, nil).Validate(r.Routes()); err != nil {
		t.Errorf("a table without rules: %v", err)
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

func FuzzRuleKey(f *testing.F) {
	for _, key := range []string{"POST /a/:b", "/a", "GET /*x", "", " ", "GET", `/a\:b`, "/:a:b", "*", "POST  /x", "/a/\\"} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		method, path, faults := parseRule(key)
		if len(faults) > 0 || strings.Contains(key, `\`) { // not all of gin's versions know escaped colons
			return
		}
		if want := strings.TrimPrefix(method+" "+path, " "); want != key {
			t.Errorf("%q is read as %q", key, want)
		}
		defer func() {
			if v := recover(); v != nil {
				t.Errorf("gin refuses %q: %v", path, v)
			}
		}()
		r := newRouter()
		if method == "" {
			method = http.MethodGet
		}
		r.Handle(method, path, tellKey)
		if got := r.Routes()[0]; got.Method != method || unescaped(got.Path) != unescaped(path) {
			t.Errorf("gin's route for %q is %s %s", key, got.Method, got.Path)
		}
	})
}
