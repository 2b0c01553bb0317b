package httplock

import (
	"net/http"
	"strings"
	"testing"

	"github.com/lockaround/lockaround/core"
	"github.com/lockaround/lockaround/middleware/internal/routetest"
)

func TestBadTablesAreRefused(t *testing.T) {
	e, _ := routetest.Open(t)
	value := WithValue("v", func(*http.Request) (string, error) { return "v", nil })
	for _, tc := range []struct {
		name    string
		engine  *core.Engine
		rules   Rules
		options []Option
		says    []string // in the error; none if there is none
	}{
		{name: "good", engine: e, rules: Rules{"POST /{x}": {Key: "{path.x}"}, "/y": {Key: "{v}"}}, options: []Option{value}},
		{name: "empty", engine: e},
		{name: "nil engine", rules: Rules{"/x": {Key: "k"}}, says: []string{"core.New"}},
		{name: "no path", engine: e, rules: Rules{"POST": {Key: "k"}}, says: []string{`rule "POST"`, "begins with /", "POST /products/{sku}/deduct"}},
		{name: "gin's wildcard", engine: e, rules: Rules{"POST /x/:sku": {Key: "k"}}, says: []string{"write {sku}"}},
		{name: "method in small letters", engine: e, rules: Rules{"post /x": {Key: "k"}}, says: []string{"POST"}},
		{name: "blank in front", engine: e, rules: Rules{" /x": {Key: "k"}}, says: []string{"begins with a blank"}},
		{name: "blank behind", engine: e, rules: Rules{"/x ": {Key: "k"}}, says: []string{`rule "/x "`}},
		{name: "blank in the path", engine: e, rules: Rules{"POST /x y": {Key: "k"}}, says: []string{"%20"}},
		{name: "wildcard never closed", engine: e, rules: Rules{"/{x": {Key: "k"}}, says: []string{"never closed"}},
		{name: "unknown wildcard", engine: e, rules: Rules{"/{sku}/{n}": {Key: "{path.id}"}}, says: []string{"{path.id}", "{path.sku}, {path.n}"}},
		{name: "no wildcards", engine: e, rules: Rules{"/x": {Key: "{path.id}"}}, says: []string{"{path.id}", "no wildcards"}},
		{name: "bad key", engine: e, rules: Rules{"/x": {Key: "{cookie.x}"}}, says: []string{`rule "/x"`, "unknown"}},
		{name: "same route", engine: e, rules: Rules{"/{a}": {Key: "k"}, "/{b}": {Key: "k"}}, says: []string{`"/{a}"`, `"/{b}"`, "same route"}},
		{name: "all faults", engine: e, rules: Rules{"/a": {Key: "{x}"}, "/b": {Key: "{y}"}, "/c": {Key: "ok"}}, says: []string{`"/a"`, "{x}", `"/b"`, "{y}"}},
		{name: "value unused", engine: e, rules: Rules{"/x": {Key: "k"}}, options: []Option{value}, says: []string{"{v}"}},
		{name: "bad option", engine: e, rules: Rules{"/x": {Key: "k"}}, options: []Option{WithBodyLimit(0)}, says: []string{"WithBodyLimit(0)"}},
		{name: "buffering off with a body", engine: e, rules: Rules{"/x": {Key: "k"}, "/y": {Key: "{body.y}"}}, options: []Option{WithoutBodyBuffer()}, says: []string{`rule "/y"`, "{body.…}"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tab, err := NewTable(tc.engine, tc.rules, tc.options...)
			if (tab == nil) != (err != nil) || (err == nil) != (len(tc.says) == 0) {
				t.Fatalf("got %v, %v", tab, err)
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
		})
	}
}

func TestValidateFindsRulesWithoutARoute(t *testing.T) {
	e, _ := routetest.Open(t)
	for _, tc := range []struct {
		name   string
		rules  map[string]string
		routes []string
		says   []string // in the error; none if there is none
	}{
		{name: "as written", rules: map[string]string{"POST /a/{x}": "{path.x}"}, routes: []string{"POST /a/{x}", "/"}},
		{name: "rule for every method", rules: map[string]string{"/a": "k"}, routes: []string{"POST /a"}},
		{name: "route for every method", rules: map[string]string{"POST /a": "k", "PUT /a": "k"}, routes: []string{"/a"}},
		{name: "rule for every host", rules: map[string]string{"/a": "k"}, routes: []string{"shop.example/a"}},
		{name: "HEAD of GET", rules: map[string]string{"HEAD /a": "k", "GET /a": "k", "GET /b": "k"}, routes: []string{"GET /a", "GET /b"}},
		{name: "other names that the key does not need", rules: map[string]string{"/a/{x}": "k"}, routes: []string{"/a/{y}"}},
		{name: "no rules", routes: []string{"/a"}},

		{name: "other names", rules: map[string]string{"/a/{x}": "{path.x}"}, routes: []string{"/a/{y}"}, says: []string{`rule "/a/{x}"`, `route "/a/{y}"`, "{path.y}"}},
		{name: "no routes", rules: map[string]string{"/a": "k"}, says: []string{`rule "/a" is for no route`}},
		{name: "other method", rules: map[string]string{"POST /a": "k"}, routes: []string{"PUT /a", "/zzzzzzzzz"}, says: []string{`did you mean "PUT /a"?`}},
		{name: "host of its own", rules: map[string]string{"shop.example/a": "k"}, routes: []string{"/a"}, says: []string{`did you mean "/a"?`}},
		{name: "slash at the end", rules: map[string]string{"/products/{x}": "k"}, routes: []string{"/products/{x}/"}, says: []string{`did you mean "/products/{x}/"?`}},
		{name: "misspelt", rules: map[string]string{"POST /prodcuts/{x}/deduct": "k"}, routes: []string{"POST /products/{x}/deduct", "/other"}, says: []string{`did you mean "POST /products/{x}/deduct"?`}},
		{name: "chi's wildcard", rules: map[string]string{"/a/{x}": "k"}, routes: []string{"/a/{x:[0-9]+}"}, says: []string{"did you mean"}},
		{name: "hidden by two others", rules: map[string]string{"/a": "k", "POST /a": "k", "PUT /a": "k"}, routes: []string{"POST /a", "PUT /a"}, says: []string{`rule "/a" is for no route`}},
		{name: "malformed route", routes: []string{"a"}, says: []string{`route "a" is malformed`}},
		{name: "all faults", rules: map[string]string{"/a": "k", "/b": "k"}, routes: []string{"/zzzzzzz"}, says: []string{`rule "/a"`, `rule "/b"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := table(t, e, tc.rules).Validate(tc.routes...)
			if (err == nil) != (len(tc.says) == 0) {
				t.Fatalf("got %v", err)
			}
			for _, says := range tc.says {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%v does not say %q", err, says)
				}
			}
		})
	}
}
