package middleware

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

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
